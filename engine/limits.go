package engine

import "time"

// Defaults of Config, used where a field is zero.
const (
	partitionsDefault   = 50
	segmentBytesDefault = 100 << 20
	pidBlockDefault     = 1000

	// retryForDefault and retryEvery: an implicit Add that meets the end of the producer's last transaction waits for
	// it here, not at the client.
	retryForDefault = 100 * time.Millisecond
	retryEvery      = 20 * time.Millisecond
)

const (
	// replayBytes is read at a time when a journal is replayed.
	replayBytes = 1 << 20

	// admitTries bounds how often one batch is verified: its guard may be void each time it comes back.
	admitTries = 2
)

// fill sets what is zero and may not be.
func (c *Config) fill() {
	set(&c.TxnPartitions, partitionsDefault)
	set(&c.OffsetsPartitions, partitionsDefault)
	set(&c.TxnSegmentBytes, segmentBytesDefault)
	set(&c.OffsetsSegmentBytes, segmentBytesDefault)
	set(&c.PIDBlock, pidBlockDefault)
	set(&c.RetryFor, retryForDefault)
	if c.Fault == nil {
		c.Fault = func(string, error) {}
	}
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
