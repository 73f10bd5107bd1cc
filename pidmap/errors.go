package pidmap

import "errors"

var (
	// ErrFenced is returned by CheckMarker: the marker's producer epoch is older than the stored one, or, under
	// transaction version 2, not above it (code 47).
	ErrFenced = errors.New("pidmap: marker from an older producer epoch")
	// ErrCoordFenced is returned by CheckMarker: a later incarnation of the coordinator has written here (code 52).
	ErrCoordFenced = errors.New("pidmap: marker from an older coordinator epoch")
	// ErrFull is returned by CheckMarker where Check says Full: ProducersLimit producers have open transactions.
	ErrFull = errors.New("pidmap: every producer the map can hold has an open transaction")
	// ErrSnapshot is what every error of Decode and Load wraps: the bytes are no snapshot, or a damaged one. The caller
	// deletes the file and takes the one before it.
	ErrSnapshot = errors.New("pidmap: bad snapshot")
)
