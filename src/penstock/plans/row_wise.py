"""The expressions that look at their own row and at nothing else, by the names of their Catalyst classes.

What is not in this list is not folded. The list was made from Spark 4.3.0: every class of `catalyst.expressions` that
Spark itself calls deterministic, less what it should not have: clocks, `uniform`, `reflect`, encryption with a random
start. Time windows and Python functions are judged beside it, by `row_wise_only`.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.plans.tree import Expression
from penstock.plans.whitelist import ROW_WISE_UDFS, Refusal
from penstock.plans.windows import is_session, is_window_time, time_window
from penstock.plans.words import in_words

_NAMES = """
    Abs Acos Acosh Add AddMonths AesDecrypt Alias And ArrayAggregate ArrayAppend ArrayBinarySearch ArrayCompact
    ArrayContains ArrayDistinct ArrayExcept ArrayExists ArrayFilter ArrayForAll ArrayInsert ArrayIntersect ArrayJoin
    ArrayMax ArrayMin ArrayPosition ArrayPrepend ArrayRemove ArrayRepeat ArraySize ArraySort ArrayTransform
    ArrayUnion ArraysOverlap ArraysZip Ascii Asin Asinh AssertTrue AtLeastNNonNulls Atan Atan2 Atanh
    AttributeReference BRound Base32 Base64 Between Bin BinaryPad BitLength BitmapBitPosition BitmapBucketNumber
    BitmapCount BitwiseAnd BitwiseCount BitwiseGet BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast
    CastTimestampNTZToLong Cbrt Ceil CheckOverflow Chr Coalesce Collate Collation CollationAwareMurmur3Hash
    CollationAwareXxHash64 CollationKey CommonExpressionDef CommonExpressionRef Concat ConcatWs Contains Conv
    ConvertTimezone Cos Cosh Cot Crc32 CreateArray CreateMap CreateNamedStruct Csc CsvToStructs DateAdd
    DateAddInterval DateAddYMInterval DateDiff DateFormatClass DateFromUnixDate DateSub DatetimeSub DayName
    DayOfMonth DayOfWeek DayOfYear DecimalAddNoOverflowCheck DecimalDivideWithOverflowCheck
    DecimalSubtractNoOverflowCheck Decode Divide DivideDTInterval DivideInterval DivideYMInterval DropField
    ElementAt Elt Encode EndsWith EqualNull EqualNullSafe EqualTo EulerNumber Exp Expm1 Extract
    ExtractANSIIntervalDays ExtractANSIIntervalHours ExtractANSIIntervalMinutes ExtractANSIIntervalMonths
    ExtractANSIIntervalSeconds ExtractANSIIntervalYears ExtractIntervalDays ExtractIntervalHours
    ExtractIntervalMinutes ExtractIntervalMonths ExtractIntervalSeconds ExtractIntervalYears Factorial FindInSet
    Flatten Floor FormatNumber FormatString FromAvro FromProtobuf FromUTCTimestamp FromUnixTime Get GetArrayItem
    GetArrayStructFields GetJsonObject GetMapValue GetStructField GetTimestamp GreaterThan GreaterThanOrEqual
    Greatest Hex HiveHash HllSketchEstimate HllUnion Hmac Hour HoursOfTime Hypot ILike If In InitCap IntegralDivide
    IsNaN IsNotNull IsNull IsValidUTF8 IsValidVariant IsVariantNull JaroWinkler JsonObjectKeys JsonToStructs
    KllSketchGetNBigint KllSketchGetNDouble KllSketchGetNFloat KllSketchGetQuantileBigint KllSketchGetQuantileDouble
    KllSketchGetQuantileFloat KllSketchGetRankBigint KllSketchGetRankDouble KllSketchGetRankFloat
    KllSketchMergeBigint KllSketchMergeDouble KllSketchMergeFloat KllSketchToStringBigint KllSketchToStringDouble
    KllSketchToStringFloat KnownFloatingPointNormalized KnownNotContainsNull KnownNotNull KnownNullable
    LambdaFunction LastDay Least Left Length LengthOfJsonArray LessThan LessThanOrEqual Levenshtein Like LikeAll
    LikeAny Literal Log Log10 Log1p Log2 Logarithm Lower Luhncheck MakeDTInterval MakeDate MakeDecimal MakeInterval
    MakeTime MakeTimestamp MakeTimestampFromDateTime MakeTimestampLTZ MakeTimestampLTZNanos MakeTimestampNTZ
    MakeTimestampNTZNanos MakeValidUTF8 MakeYMInterval MapConcat MapContainsKey MapEntries MapFilter MapFromArrays
    MapFromEntries MapKeys MapSort MapValues MapZipWith Mask Md5 MicrosToTimestamp MillisToTimestamp Minute
    MinutesOfTime Month MonthName MonthsBetween Multiply MultiplyDTInterval MultiplyInterval MultiplyYMInterval
    Murmur3Hash NaNvl NamedLambdaVariable NanosToTimestamp NextDay Not NotLikeAll NotLikeAny NullIf NullIfResult
    NullIfZero Nvl Nvl2 OctetLength Or Overlay ParseJson ParseToDate ParseToTimestamp ParseUrl Pi Pmod Pow Quarter
    Quote RLike RaiseError RegExpCount RegExpExtract RegExpExtractAll RegExpInStr RegExpReplace RegExpSubStr
    Remainder ResolvedCollation Reverse Right Rint Round RoundCeil RoundFloor SchemaOfAvro SchemaOfCsv SchemaOfJson
    SchemaOfVariant SchemaOfXml Sec Second SecondWithFraction SecondWithFractionNanos SecondsOfTime
    SecondsOfTimeWithFraction SecondsToTimestamp Sentences Sequence Sha1 Sha2 ShiftLeft ShiftRight
    ShiftRightUnsigned Signum Sin Sinh Size Slice SortArray SoundEx SplitPart Sqrt StartsWith StringDecode
    StringInstr StringInstrWithOccurrence StringLPad StringLocate StringRPad StringRepeat StringReplace StringSpace
    StringSplit StringSplitSQL StringToMap StringTranslate StringTrim StringTrimBoth StringTrimLeft StringTrimRight
    StructsToCsv StructsToJson StructsToXml Substring SubstringIndex Subtract SubtractDates SubtractTimes
    SubtractTimestamps Tan Tanh ThetaDifference ThetaIntersection ThetaSketchEstimate ThetaUnion TimeAddInterval
    TimeBucket TimeDiff TimeFromMicros TimeFromMillis TimeFromSeconds TimeToMicros TimeToMillis TimeToSeconds
    TimeTrunc TimestampAdd TimestampAddInterval TimestampAddYMInterval TimestampDiff ToAvro ToBinary ToCharacter
    ToDegrees ToNumber ToPrettyString ToProtobuf ToRadians ToTime ToUTCTimestamp ToUnixTimestamp ToVariantObject
    TransformKeys TransformValues TruncDate TruncTimestamp TryAdd TryAesDecrypt TryDivide TryElementAt TryEval
    TryMakeInterval TryMakeTimestamp TryMakeTimestampFromDateTime TryMod TryMultiply TryParseUrl TrySubtract
    TryToBinary TryToNumber TryUrlDecode TryValidateUTF8 TupleDifferenceDouble TupleDifferenceInteger
    TupleDifferenceThetaDouble TupleDifferenceThetaInteger TupleIntersectionDouble TupleIntersectionInteger
    TupleIntersectionThetaDouble TupleIntersectionThetaInteger TupleSketchEstimateDouble TupleSketchEstimateInteger
    TupleSketchSummaryDouble TupleSketchSummaryInteger TupleSketchThetaDouble TupleSketchThetaInteger
    TupleUnionDouble TupleUnionInteger TupleUnionThetaDouble TupleUnionThetaInteger TypeOf UnBase32 UnBase64
    UnaryMinus UnaryPositive Unhex UnixDate UnixMicros UnixMillis UnixNanos UnixSeconds UnixTimestamp UnscaledValue
    UpdateFields Upper UrlDecode UrlEncode ValidateUTF8 VariantArrayAppend VariantDelete VariantGet VariantInsert
    VariantSet VariantStripNulls VectorCosineSimilarity VectorInnerProduct VectorL2Distance VectorNorm
    VectorNormalize WeekDay WeekOfYear WidthBucket With WithField XPathBoolean XPathDouble XPathFloat XPathInt
    XPathList XPathLong XPathShort XPathString XmlToStructs XxHash64 Year YearOfWeek ZeroIfNull ZipWith
"""

ROW_WISE = frozenset(_NAMES.split())

GENERATORS = frozenset(["Explode", "PosExplode", "Inline", "Stack", "JsonTuple", "GeneratorOuter", "VariantExplode"])
"""What may stand in a Generate: several rows made of one, and of that one only."""


def row_wise_only(expression: Expression, *, is_generator: bool = False) -> Iterator[Refusal]:
    """What in an expression looks at more than its own row."""
    if time_window(expression) is not None or is_window_time(expression):
        return
    if is_session(expression):
        yield Refusal("a session window joins rows that lie beside each other: a new row can join two sessions")
        return
    if is_generator and expression.kind in GENERATORS:
        pass
    elif expression.kind == "PythonUDF":
        if expression.fields.get("evalType") not in ROW_WISE_UDFS:
            yield Refusal(
                f"{expression.name}() is a pandas or Arrow UDF, which sees a batch of rows at once",
                "write it as a plain udf, which sees one row",
            )
        elif expression.fields.get("udfDeterministic") is False:
            yield Refusal(f"{expression.name}() is marked as nondeterministic")
    elif expression.plan is not None or expression.kind == "InSubquery":
        yield Refusal("it has a subquery")
    elif expression.kind not in ROW_WISE:
        yield Refusal(f"{in_words(expression)} may look at more than its own row")
    for child in expression.children:
        yield from row_wise_only(child, is_generator=is_generator)
