package broker

import "time"

// Defaults of Config, used where a field is zero.
const (
	inFlightDefault      = 256 << 20 // bytes of requests held at a time
	connsDefault         = 10_000
	connsPerIPDefault    = 10_000
	pipelineDefault      = 64 // answers outstanding on one connection
	idleDefault          = 10 * time.Minute
	writeTimeoutDefault  = 30 * time.Second
	fetchWaitDefault     = 5 * 60 * 1000 // ms
	fetchBytesDefault    = 55 << 20
	numPartitionsDefault = 1
	syncersDefault       = 4
	recoveryDefault      = 2         // logs opened at a time
	producersDefault     = 1<<24 - 1 // remembered by one partition

	// producerExpireDefault: a producer idle for so long is forgotten.
	producerExpireDefault = 24 * time.Hour
	pidBlockDefault       = 1000

	internalPartitionsDefault = 50        // of each internal topic
	internalSegmentDefault    = 100 << 20 // bytes

	txnTimeoutMaxDefault = 15 * 60 * 1000          // ms
	txnIDExpireDefault   = 7 * 24 * 60 * 60 * 1000 // ms
	txnSnapshotEvery     = 16 << 20                // bytes of a journal
	txnRewriteEvery      = 16 << 20                // bytes of a journal beyond what is live
)

// What all logs share.
const (
	indexCacheBytes = 64 << 20 // sealed indexes in memory
	sealedHandles   = 1024     // sealed segments open at a time; well below the kernel's limit of mappings
)

const (
	// pipelineMax bounds what PipelineMax may be set to: the ring of answers of every connection is that long.
	pipelineMax = 1 << 12

	// readBuffer is the buffered reader of one connection: small requests that arrive together cost one read.
	readBuffer = 16 << 10

	// readAheadMax is what a connection may hold of requests that wait for their turn; beyond it nothing is read.
	readAheadMax = 256 << 10

	// pipelinedPartsMax is how many partitions a Produce may have for another request to be read before it is answered.
	pipelinedPartsMax = 1024

	// sendBytesMax ends the gathering of ready answers for one write.
	sendBytesMax = 1 << 20

	// sendFramesMax likewise.
	sendFramesMax = 64
)

const (
	// sweepEvery is how often connections are looked over for idleness and stalls.
	sweepEvery = time.Second

	// tickEvery is how often the store does its housekeeping.
	tickEvery = time.Second

	// engineTickEvery is how often coordinator and groups look at their timers.
	engineTickEvery = 100 * time.Millisecond
	// reloadFirst and reloadMax bound the pause before a journal that could not be read is read again.
	reloadFirst = time.Second
	reloadMax   = time.Minute

	// frameGrace and rateMin bound how long a piece of a frame may take to arrive, and one write to leave beyond its
	// timeout.
	frameGrace = 30 * time.Second
	rateMin    = 64 << 10 // bytes a second

	// overGrace and overRate bound the one frame that is beyond the in-flight budget.
	overGrace = 10 * time.Second
	overRate  = 1 << 20 // bytes a second

	// handshakeMax bounds a TLS handshake, farewellMax the last record of a TLS connection; tlsLookEvery is how often the
	// files of TLS are looked at again.
	handshakeMax = 10 * time.Second
	farewellMax  = time.Second
	tlsLookEvery = 5 * time.Second

	// failDelayDefault is how long a failed login waits for its answer.
	failDelayDefault = 100 * time.Millisecond

	// drainMax is how long a stop waits for connections to take their answers.
	drainMax = 5 * time.Second

	// acceptPause follows a failed accept (no descriptors left); it doubles up to acceptPauseMax.
	acceptPause    = 5 * time.Millisecond
	acceptPauseMax = time.Second

	// complaintsPerSecond bounds the log lines about bad requests and refused connections.
	complaintsPerSecond = 10

	// clientTextMax is how much of a text that a client chose goes into a log line, in bytes.
	clientTextMax = 100
)

const (
	// sessionsMax is the number of fetch sessions; sessionPartsMax of the partitions they remember together.
	sessionsMax     = 1000
	sessionPartsMax = 1 << 18

	// sessionEvict: a session unused for so long gives way to a new one, one older than that to a larger one.
	sessionEvict = 120 * time.Second

	// parkedPartsMax is the number of partitions that all parked fetches wait for together, some hundred bytes each; a
	// Fetch beyond it is answered at once with what is there.
	parkedPartsMax = 1 << 18

	// fetchPartsKeep bounds what a pooled Fetch keeps for the next one.
	fetchPartsKeep = 256
)

const (
	// partitionsPerRequestMax bounds the partitions one CreateTopics or CreatePartitions request may make.
	partitionsPerRequestMax = 10_000

	// describePartitionsMax bounds the partitions of one DescribeTopicPartitions answer.
	describePartitionsMax = 2000

	// watermarksDefault is the number of partitions above which watermarks are not shown as metrics.
	watermarksDefault = 1000

	// groupSeriesMax is the number of groups whose lag is told one by one; labelTextMax cuts what a client chose, bytes.
	groupSeriesMax = 500
	labelTextMax   = 256

	// openSeriesMax is the number of partitions whose open transactions are told one by one.
	openSeriesMax = 200

	// adminHeaderTimeout and adminIdleTimeout bound how long an operator's connection may send a header, and idle.
	adminHeaderTimeout = 5 * time.Second
	adminIdleTimeout   = time.Minute
)
