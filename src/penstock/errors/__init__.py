"""Every error Penstock raises on purpose.

PenstockError
├── LogError                     something about the log as a whole
│   ├── LogUrlError              the address of the log is not one we know
│   ├── CorruptionError          bytes on disk are not what was written
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
│   ├── UnknownSetting           nothing has that name
│   └── SettingValueError        the value is not one the setting can have
├── JavaMissing                  Spark needs a Java that is not here
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
├── LoadError                    something about loading a file
│   ├── FileFormatError          the file cannot be read as what it should be
│   ├── FileColumnsError         the columns of the file are not those of the topic
│   ├── ArrivalColumnError       the column given as arrival does not say when records arrived
│   └── FileChanged              somebody wrote to the file while it was loaded
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
│   ├── ReplayRefused            retention removed records that computing anew would need
│   ├── KeptRowsLost             retention removed records that a redone view had not kept yet
│   ├── TopicDiffers             a topic is there that cannot become what is defined
│   ├── TwoRowsForOneKey         a view's function gave two rows with the same key
│   ├── StepFailed               Spark could not compute a view
│   │   ├── StepOverflow         a number is too large for its type
│   │   └── ValueUnfit           a folded view came to a value that its database cannot hold
│   ├── GenerationError          a generation of a view that is meant is not there
│   │   ├── UnknownGeneration    the view has none of that number or name
│   │   ├── NothingToRollBack    no older one is left
│   │   ├── NothingReady         none waits to be switched in
│   │   └── SwitchNotTaken       a run that holds one ready does not answer
│   ├── UntilError               a place to stop at that cannot be understood
│   └── UnknownMode              there is no such mode
├── ServiceError                 something about the HTTP service
│   ├── ServeRefused             it would be open to others without tokens, or cannot listen there
│   ├── TokensUnreadable         the file of tokens cannot be read, or others could read it
│   ├── TokenTaken               a token of that name is there already
│   ├── UnknownToken             no token has that name
│   ├── RequestRefused           a request that cannot be answered as it is
│   └── NoChangelog              the view does not publish its changes
├── VerifyError                  something keeps verify from comparing
│   ├── NothingRecorded          the log holds no records to compare on
│   └── VerifyProcessFailed      a process that verify started ended by itself
├── MergeOverflow                a merged number does not fit its column
├── AggregateTypeError           an aggregate cannot work on values of this type
├── AggregateOptionError         an aggregate was given an option that it cannot have
└── TopicError                   something about one topic
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

from penstock.errors.base import PenstockError, did_you_mean
from penstock.errors.log import (
    ArrivalColumnError,
    ArrivalRefused,
    BatchTooLarge,
    CommandRefused,
    ConsumerClosed,
    ConsumerOptionError,
    CorruptionError,
    DurationError,
    FileChanged,
    FileColumnsError,
    FileFormatError,
    ForkedHandle,
    GroupActive,
    GroupError,
    GroupNameError,
    JavaMissing,
    LoadError,
    LogError,
    LogUrlError,
    MemberEvicted,
    NoGroup,
    NotAcknowledged,
    NotAnEvent,
    NotAssigned,
    OffsetOutOfRange,
    PartitionReadOnly,
    ProducerClosed,
    ProducerError,
    ProducerFenced,
    ProducerSettingError,
    RecordsRefused,
    SchemaError,
    SchemaOutgrown,
    SchemaRefused,
    SequenceRefused,
    SettingsError,
    SettingsFileError,
    SettingValueError,
    SourceError,
    SourceOptionError,
    SpillDamaged,
    StartError,
    StreamDataLost,
    TimeRangeError,
    TopicDefinitionError,
    TopicDeleted,
    TopicError,
    TopicExists,
    TopicNameError,
    TopicReplaced,
    UnknownColumn,
    UnknownGroup,
    UnknownSetting,
    UnknownTopic,
)
from penstock.errors.modes import (
    GenerationError,
    KeptRowsLost,
    NothingReady,
    NothingToRollBack,
    PipelineProblems,
    ReplayRefused,
    RunError,
    StepFailed,
    StepOverflow,
    SwitchNotTaken,
    TopicDiffers,
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
    TableUnreadable,
    ViewFunctionError,
)
from penstock.errors.running import (
    AggregateOptionError,
    AggregateTypeError,
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
    "ArrivalColumnError",
    "ArrivalRefused",
    "BatchTooLarge",
    "BindingError",
    "CommandRefused",
    "ConsumerClosed",
    "ConsumerOptionError",
    "CorruptionError",
    "CycleError",
    "DefinitionError",
    "DurationError",
    "EventsRefused",
    "ExportFormatError",
    "FenceMoved",
    "FileChanged",
    "FileColumnsError",
    "FileFormatError",
    "ForkedHandle",
    "GenerationError",
    "GroupActive",
    "GroupError",
    "GroupNameError",
    "JavaMissing",
    "KeptRowsLost",
    "KeyValueError",
    "LoadError",
    "LogError",
    "LogUrlError",
    "MemberEvicted",
    "MergeOverflow",
    "NameTaken",
    "NoChangelog",
    "NoGroup",
    "NoPipeline",
    "NoSuchRow",
    "NotADataFrame",
    "NotAcknowledged",
    "NotAnEvent",
    "NotAssigned",
    "NothingReady",
    "NothingRecorded",
    "NothingToRollBack",
    "OffsetOutOfRange",
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
    "QueryRefused",
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
    "SeveralPipelines",
    "SourceError",
    "SourceOptionError",
    "SpillDamaged",
    "StartError",
    "StepFailed",
    "StepOverflow",
    "StoreFull",
    "StoreTooOld",
    "StoreUnavailable",
    "StoreUrlError",
    "StreamDataLost",
    "SwitchNotTaken",
    "TableUnreadable",
    "TimeRangeError",
    "TokenTaken",
    "TokensUnreadable",
    "TopicDefinitionError",
    "TopicDeleted",
    "TopicDiffers",
    "TopicError",
    "TopicExists",
    "TopicNameError",
    "TopicReplaced",
    "TwoRowsForOneKey",
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
    "did_you_mean",
]

for _each in list(globals().values()):
    if isinstance(_each, type) and issubclass(_each, PenstockError):
        _each.__module__ = __name__  # Where people find it, whatever file it stands in.
