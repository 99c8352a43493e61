"""Every error Penstock raises on purpose.

PenstockError
├── InvariantBroken              what protects data does not hold: a fault of ours
├── LogError                     something about the log as a whole
│   ├── LogUrlError              the address of the log is not one we know
│   ├── NotAFolder               a command about the files of a log, and the log has none
│   ├── KafkaMissing             what speaks with Kafka is not installed
│   ├── KafkaSettingUnknown      a setting that Spark's Kafka client has no word for
│   ├── KafkaUnavailable         the brokers cannot be reached, or do not answer
│   ├── KafkaRefused             the brokers answer, and do not do what they were asked
│   ├── CorruptionError          bytes on disk are not what was written
│   ├── ArrivalAhead             records arrived in the future
│   ├── ClockAhead               the clock is years ahead of when the topic was last written
│   ├── OutOfFiles               the process may open no more files; nothing was written
│   ├── TooManyKeys              no further idempotency key can be remembered at the moment
│   ├── PartitionReadOnly        a write or fsync failed; this process writes no more there
│   ├── OffsetOutOfRange         the offset was removed by retention, or is not written yet
│   ├── ProducerFenced           a newer producer of the same name has taken over
│   ├── ArrivalRefused           records would arrive before those that are there already
│   └── ForkedHandle             the log was opened before a fork; open it in the child
├── DurationError                a length of time that cannot be read
├── BatchTooLarge                more text in one column than fits into one batch
├── SchemaError                  columns that cannot be read, or a type we do not keep
├── SchemaRefused                a change of columns that old records could not follow
├── SettingsError                something in penstock.toml, the environment or a flag
│   ├── SettingsFileError        the file cannot be read
│   ├── SettingsFileUntrusted    another user wrote the file, or may change it
│   ├── LogIsPrivate             a log that should be shared with a group is its owner's alone
│   ├── UnknownSetting           nothing has that name
│   └── SettingValueError        the value is not one the setting can have
├── JavaMissing                  Spark needs a Java that is not here
├── ClusterError                 something about the Spark cluster
│   ├── ClusterUnreachable       its master does not answer, or does not take this application
│   ├── ClusterSecretMissing     nothing keeps others from using it
│   ├── LogNotShared             the log is in a folder that its machines may not have
│   ├── NoExecutors              it gives this application nothing to compute with
│   └── ExecutorUnfit            one of its machines lacks something that this one has
├── JarsError                    something about the jars of Spark's Kafka connector
│   ├── ConnectorMissing         they are not here
│   ├── DownloadFailed           one of them could not be fetched
│   └── ChecksumWrong            what came is something else
├── ProducerError                something about one producer
│   ├── ProducerSettingError     a setting that no producer can have
│   ├── ProducerClosed           it was closed before
│   ├── NotAnEvent               what was given cannot be sent
│   ├── SequenceRefused          a sequence is missing, not wanted or not greater than the last
│   ├── NotAcknowledged          the time ran out before the answer came
│   └── SpillDamaged             events that waited on disk cannot be read back
├── GroupError                   something about a consumer or its group
│   ├── GroupNameError           the name is not allowed
│   ├── UnknownGroup             nothing has that name
│   ├── GroupActive              it has living members, who would undo the change
│   ├── NoGroup                  a consumer without a group has nowhere to keep its progress
│   ├── MemberEvicted            this consumer lost its partitions to others of its group
│   ├── NotAssigned              the partition is not this consumer's at the moment
│   ├── StartError               a place to start reading that cannot be understood
│   ├── ConsumerOptionError      an option that a consumer cannot have
│   └── ConsumerClosed           it was closed before
├── CommandRefused               a command that would do harm, or cannot be done as it was given
├── DemoFailed                   a part of the demo ended by itself
├── LoadError                    something about loading a file
│   ├── FileFormatError          the file cannot be read as what it should be
│   ├── FileColumnsError         the columns of the file are not those of the topic
│   ├── ArrivalColumnError       the column given as arrival does not say when records arrived
│   ├── FileChanged              somebody wrote to the file while it was loaded
│   ├── MoveRefused              a log cannot be moved as it is
│   └── NothingToMove            no topic of it matches
├── TimeRangeError               a range of time that cannot be read
├── PipelineError                something about a pipeline; place says where in the user's file
│   ├── DefinitionError          a name, a column or an option that does not fit
│   ├── NameTaken                two things would be bound by the same name
│   ├── ViewFunctionError        a view's function has parameters that nothing can be bound to
│   ├── BindingError             a view or table reads something that nothing is named after
│   ├── CycleError               views read one another in a circle
│   ├── NotADataFrame            a view's function returned something else
│   ├── PipelineLoadError        the file that should hold a pipeline does not
│   │   ├── PipelineFileMissing  there is no such file or module
│   │   ├── PipelineImportFailed it raised an error while it was imported
│   │   ├── NoPipeline           it holds none, or none of that name
│   │   └── SeveralPipelines     it holds several, and nobody said which
│   ├── AlertConditionError      the when= of an alert cannot be asked of its view
│   ├── AlertFunctionError       an alert's function has parameters that it cannot be called with
│   ├── TableChanged             a large static table was written to during a run
│   └── TableUnreadable          a static table is not there, or cannot be read
├── SourceError                  something about the topic as a Spark source
│   ├── SourceOptionError        an option is missing, unknown, or has a value it cannot have
│   ├── StreamDataLost           retention removed records before the stream read them
│   └── SchemaOutgrown           the topic's columns grew while the query was running
├── ViewsError                   something about stored views, or the database that holds them
│   ├── PipelineOwned            another run is working on this pipeline
│   ├── OwnershipLost            another run has taken the pipeline over
│   ├── UnknownView              no view of that name is stored
│   ├── ViewTaken                another pipeline of this database has a view of that name
│   ├── ViewNameTaken            something that is not ours has the name of a view
│   ├── StoreUrlError            the address of the database is not one we know
│   ├── StoreTooOld              the database is older than what keeps views safely
│   ├── StoreUnavailable         the database cannot be reached, is busy, or went away
│   │   ├── StoreFull            no space is left where it is
│   │   ├── StoreNotTrusted      TLS was asked for, and the server is not who it should be
│   │   └── FenceMoved           a commit whose answer was lost came through after all
│   ├── RowsRefused              rows break a rule of their table
│   ├── RowsReplaced             a table was dropped before it could be read: read again
│   ├── QueryRefused             a query cannot be run, or would change something
│   ├── KeyValueError            a value cannot be one of the key's columns
│   ├── UnknownViewColumn        the view has no column of that name
│   ├── NoSuchRow                the view has no row with that key
│   ├── ViewsConnected           views that are kept together are dropped together
│   └── ExportFormatError        the name of a file does not tell how to write it
├── RunError                     something keeps a pipeline from running
│   ├── PipelineProblems         views that cannot be kept as they are written
│   ├── ViewsChanged             views are there that other code made
│   ├── LogReplaced              a topic is not the one that stored views were computed from
│   ├── TopicForgets             a topic removes records that a view goes on counting
│   ├── ReplayRefused            retention removed records that computing anew would need
│   ├── KeptRowUnfit             a record that later redos need does not fit the database
│   ├── KeptRowsLost             retention removed records that a redone view had not kept yet
│   ├── TopicDiffers             a topic is there that cannot become what is defined
│   ├── TwoRowsForOneKey         a view's function gave two rows with the same key
│   ├── StepFailed               Spark could not compute a view
│   │   ├── StepOverflow         a number is too large for its type
│   │   ├── TooManyFailed        its function fails on more records of one step than are set aside
│   │   └── ValueUnfit           a folded view came to a value that its database cannot hold
│   ├── GenerationError          a generation of a view that is meant is not there
│   │   ├── UnknownGeneration    the view has none of that number or name
│   │   ├── NothingToRollBack    no older one is left
│   │   ├── NothingReady         none waits to be switched in
│   │   └── SwitchNotTaken       a run that holds one ready does not answer
│   ├── RealtimeRefused          views that cannot be run record at a time
│   ├── RealtimeOptionError      an option that such a run cannot have
│   ├── ChangelogTaken           a changelog that was written in steps, or record at a time, is so still
│   ├── ProgressMissing          nothing tells how far a run record at a time has come
│   ├── RealtimeFailed           Spark ended a run record at a time
│   ├── TooFewCores              a cluster has fewer cores than such a run needs
│   ├── ZoneNotUtc               Spark has a time zone that such a run would write as UTC
│   ├── UntilError               a place to stop at that cannot be understood
│   └── UnknownMode              there is no such mode
├── ServiceError                 something about the HTTP service
│   ├── ServeRefused             it would be open to others without tokens, or cannot listen there
│   ├── TokensUnreadable         the file of tokens cannot be read, or others could read it
│   ├── TokenTaken               a token of that name is there already
│   ├── UnknownToken             no token has that name
│   ├── RequestRefused           a request that cannot be answered as it is
│   └── NoChangelog              the view does not publish its changes
├── AlertError                   something about telling people
│   ├── UnknownAlert             nothing was told under that number
│   └── NotDelivered             a receiver did not take a message
├── VerifyError                  something keeps verify from comparing
│   ├── NothingRecorded          the log holds no records to compare on
│   ├── VerifyProcessFailed      a process that verify started ended by itself
│   └── FailedElsewhere          a view could not be computed in another environment
├── MergeOverflow                a merged number does not fit its column
├── AggregateTypeError           an aggregate cannot work on values of this type
├── AggregateOptionError         an aggregate was given an option that it cannot have
└── TopicError                   something about one topic
    ├── RecordTooLarge           a record is larger than the log takes
    ├── RecordsRefused           records do not fit the topic; nothing was stored
    │   └── EventsRefused        the same over HTTP, with the first of them
    ├── UnknownTopic             nothing has that name
    ├── TopicExists              the name is taken
    ├── TopicDeleted             the topic went away while it was in use
    ├── TopicNameError           the name is not allowed
    ├── UnknownColumn            it has no column of that name
    ├── TopicReplaced            it was deleted and made again: what is known of it no longer holds
    └── TopicDefinitionError     a key, event time or setting does not fit

Each class holds fields and builds its own text: which thing, where, what was expected, what was found, what to do next.
`is_retryable` says whether trying the same thing again can help.
"""

from penstock.errors.alerts import AlertConditionError, AlertError, AlertFunctionError, NotDelivered, UnknownAlert
from penstock.errors.base import InvariantBroken, PenstockError, did_you_mean, require
from penstock.errors.consume import (
    ConsumerClosed,
    ConsumerOptionError,
    GroupActive,
    GroupError,
    GroupNameError,
    MemberEvicted,
    NoGroup,
    NotAssigned,
    StartError,
    UnknownGroup,
)
from penstock.errors.load import (
    ArrivalColumnError,
    FileChanged,
    FileColumnsError,
    FileFormatError,
    LoadError,
    MoveRefused,
    NothingToMove,
)
from penstock.errors.log import (
    ArrivalAhead,
    ArrivalRefused,
    BatchTooLarge,
    ClockAhead,
    CorruptionError,
    DurationError,
    ForkedHandle,
    KafkaMissing,
    KafkaRefused,
    KafkaUnavailable,
    LogError,
    LogUrlError,
    NotAFolder,
    OffsetOutOfRange,
    OutOfFiles,
    PartitionReadOnly,
    ProducerFenced,
    RecordsRefused,
    RecordTooLarge,
    SchemaError,
    SchemaRefused,
    TimeRangeError,
    TooManyKeys,
    TopicDefinitionError,
    TopicDeleted,
    TopicError,
    TopicExists,
    TopicNameError,
    TopicReplaced,
    UnknownColumn,
    UnknownTopic,
)
from penstock.errors.modes import (
    GenerationError,
    KeptRowsLost,
    KeptRowUnfit,
    LogReplaced,
    NothingReady,
    NothingToRollBack,
    PipelineProblems,
    ReplayRefused,
    RunError,
    StepFailed,
    StepOverflow,
    SwitchNotTaken,
    TooManyFailed,
    TopicDiffers,
    TopicForgets,
    TwoRowsForOneKey,
    UnknownGeneration,
    UnknownMode,
    UntilError,
    ValueUnfit,
    ViewsChanged,
)
from penstock.errors.pipeline import (
    BindingError,
    CycleError,
    DefinitionError,
    NameTaken,
    NoPipeline,
    NotADataFrame,
    PipelineError,
    PipelineFileMissing,
    PipelineImportFailed,
    PipelineLoadError,
    SeveralPipelines,
    TableChanged,
    TableUnreadable,
    ViewFunctionError,
)
from penstock.errors.produce import (
    NotAcknowledged,
    NotAnEvent,
    ProducerClosed,
    ProducerError,
    ProducerSettingError,
    SequenceRefused,
    SpillDamaged,
)
from penstock.errors.realtime import (
    ChangelogTaken,
    ChecksumWrong,
    ConnectorMissing,
    DownloadFailed,
    JarsError,
    KafkaSettingUnknown,
    ProgressMissing,
    RealtimeFailed,
    RealtimeOptionError,
    RealtimeRefused,
    TooFewCores,
    ZoneNotUtc,
)
from penstock.errors.running import (
    AggregateOptionError,
    AggregateTypeError,
    FailedElsewhere,
    MergeOverflow,
    NothingRecorded,
    VerifyError,
    VerifyProcessFailed,
)
from penstock.errors.service import (
    EventsRefused,
    NoChangelog,
    RequestRefused,
    ServeRefused,
    ServiceError,
    TokensUnreadable,
    TokenTaken,
    UnknownToken,
)
from penstock.errors.settings import (
    CommandRefused,
    DemoFailed,
    LogIsPrivate,
    SettingsError,
    SettingsFileError,
    SettingsFileUntrusted,
    SettingValueError,
    UnknownSetting,
)
from penstock.errors.spark import (
    ClusterError,
    ClusterSecretMissing,
    ClusterUnreachable,
    ExecutorUnfit,
    JavaMissing,
    LogNotShared,
    NoExecutors,
    SchemaOutgrown,
    SourceError,
    SourceOptionError,
    StreamDataLost,
)
from penstock.errors.views import (
    ExportFormatError,
    FenceMoved,
    KeyValueError,
    NoSuchRow,
    OwnershipLost,
    PipelineOwned,
    QueryRefused,
    RowsRefused,
    RowsReplaced,
    StoreFull,
    StoreNotTrusted,
    StoreTooOld,
    StoreUnavailable,
    StoreUrlError,
    UnknownView,
    UnknownViewColumn,
    ViewNameTaken,
    ViewsConnected,
    ViewsError,
    ViewTaken,
)

__all__ = [
    "AggregateOptionError",
    "AggregateTypeError",
    "AlertConditionError",
    "AlertError",
    "AlertFunctionError",
    "ArrivalAhead",
    "ArrivalColumnError",
    "ArrivalRefused",
    "BatchTooLarge",
    "BindingError",
    "ChangelogTaken",
    "ChecksumWrong",
    "ClockAhead",
    "ClusterError",
    "ClusterSecretMissing",
    "ClusterUnreachable",
    "CommandRefused",
    "ConnectorMissing",
    "ConsumerClosed",
    "ConsumerOptionError",
    "CorruptionError",
    "CycleError",
    "DefinitionError",
    "DemoFailed",
    "DownloadFailed",
    "DurationError",
    "EventsRefused",
    "ExecutorUnfit",
    "ExportFormatError",
    "FailedElsewhere",
    "FenceMoved",
    "FileChanged",
    "FileColumnsError",
    "FileFormatError",
    "ForkedHandle",
    "GenerationError",
    "GroupActive",
    "GroupError",
    "GroupNameError",
    "InvariantBroken",
    "JarsError",
    "JavaMissing",
    "KafkaMissing",
    "KafkaRefused",
    "KafkaSettingUnknown",
    "KafkaUnavailable",
    "KeptRowUnfit",
    "KeptRowsLost",
    "KeyValueError",
    "LoadError",
    "LogError",
    "LogIsPrivate",
    "LogNotShared",
    "LogReplaced",
    "LogUrlError",
    "MemberEvicted",
    "MergeOverflow",
    "MoveRefused",
    "NameTaken",
    "NoChangelog",
    "NoExecutors",
    "NoGroup",
    "NoPipeline",
    "NoSuchRow",
    "NotADataFrame",
    "NotAFolder",
    "NotAcknowledged",
    "NotAnEvent",
    "NotAssigned",
    "NotDelivered",
    "NothingReady",
    "NothingRecorded",
    "NothingToMove",
    "NothingToRollBack",
    "OffsetOutOfRange",
    "OutOfFiles",
    "OwnershipLost",
    "PartitionReadOnly",
    "PenstockError",
    "PipelineError",
    "PipelineFileMissing",
    "PipelineImportFailed",
    "PipelineLoadError",
    "PipelineOwned",
    "PipelineProblems",
    "ProducerClosed",
    "ProducerError",
    "ProducerFenced",
    "ProducerSettingError",
    "ProgressMissing",
    "QueryRefused",
    "RealtimeFailed",
    "RealtimeOptionError",
    "RealtimeRefused",
    "RecordTooLarge",
    "RecordsRefused",
    "ReplayRefused",
    "RequestRefused",
    "RowsRefused",
    "RowsReplaced",
    "RunError",
    "SchemaError",
    "SchemaOutgrown",
    "SchemaRefused",
    "SequenceRefused",
    "ServeRefused",
    "ServiceError",
    "SettingValueError",
    "SettingsError",
    "SettingsFileError",
    "SettingsFileUntrusted",
    "SeveralPipelines",
    "SourceError",
    "SourceOptionError",
    "SpillDamaged",
    "StartError",
    "StepFailed",
    "StepOverflow",
    "StoreFull",
    "StoreNotTrusted",
    "StoreTooOld",
    "StoreUnavailable",
    "StoreUrlError",
    "StreamDataLost",
    "SwitchNotTaken",
    "TableChanged",
    "TableUnreadable",
    "TimeRangeError",
    "TokenTaken",
    "TokensUnreadable",
    "TooFewCores",
    "TooManyFailed",
    "TooManyKeys",
    "TopicDefinitionError",
    "TopicDeleted",
    "TopicDiffers",
    "TopicError",
    "TopicExists",
    "TopicForgets",
    "TopicNameError",
    "TopicReplaced",
    "TwoRowsForOneKey",
    "UnknownAlert",
    "UnknownColumn",
    "UnknownGeneration",
    "UnknownGroup",
    "UnknownMode",
    "UnknownSetting",
    "UnknownToken",
    "UnknownTopic",
    "UnknownView",
    "UnknownViewColumn",
    "UntilError",
    "ValueUnfit",
    "VerifyError",
    "VerifyProcessFailed",
    "ViewFunctionError",
    "ViewNameTaken",
    "ViewTaken",
    "ViewsChanged",
    "ViewsConnected",
    "ViewsError",
    "ZoneNotUtc",
    "did_you_mean",
    "require",
]

for _each in list(globals().values()):
    if isinstance(_each, type) and issubclass(_each, PenstockError):
        _each.__module__ = __name__  # Where people find it, whatever file it stands in.
