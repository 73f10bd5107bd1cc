package wire

import "errors"

var (
	// ErrFrameSize: the length of a frame is negative or too small for a header.
	ErrFrameSize = errors.New("wire: impossible frame size")
	// ErrTooLarge: the frame is larger than its key may be.
	ErrTooLarge = errors.New("wire: frame above the limit of its key")
	// ErrHeader: the request header does not parse.
	ErrHeader = errors.New("wire: request header does not parse")
	// ErrVersion: the key is not served, or not in this version.
	ErrVersion = errors.New("wire: key or version not served")
	// ErrBody: the request body does not parse, or lists more than one request may.
	ErrBody = errors.New("wire: request body does not parse")
)
