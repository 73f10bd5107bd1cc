// Package record is the form in which the clients of all languages are told what to write and tell what they read and
// which acknowledgements they got: one JSON object a line. Bytes are base64; null is null, "" is empty.
package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Header is one header of a record. Value nil is null.
type Header struct {
	Key   string `json:"k"`
	Value []byte `json:"v"`
}

// Record is one record to write (Offset 0) or one that was read. Key and Value nil are null.
type Record struct {
	Partition int32    `json:"p"`
	Offset    int64    `json:"o"`
	Time      int64    `json:"t"` // CreateTime, ms since 1970
	Key       []byte   `json:"k"`
	Value     []byte   `json:"v"`
	Headers   []Header `json:"h"`
}

// Ack says how the broker answered for one record. Exactly one of Offset and Error counts: Error "" is success.
type Ack struct {
	Index  int    `json:"i"` // line of the record in the input, from 0
	Offset int64  `json:"o"` // as the client reported it
	Error  string `json:"e,omitempty"`
}

// Read gives every line of a file as a T.
func Read[T any](path string) ([]T, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []T
	for d := json.NewDecoder(bufio.NewReaderSize(f, 1<<20)); ; {
		var v T
		if err := d.Decode(&v); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, len(out)+1, err)
		}
		out = append(out, v)
	}
}

// Writer writes lines. Put may be called by several goroutines; each line is in the file when Put returns, so that
// another process can watch acknowledgements arrive.
type Writer[T any] struct {
	mu  sync.Mutex
	f   *os.File
	n   int
	err error
}

// Create makes the file.
func Create[T any](path string) (*Writer[T], error) {
	f, err := os.Create(path)
	return &Writer[T]{f: f}, err
}

// Put writes one line. Its error is kept for Close.
func (w *Writer[T]) Put(v T) {
	line, err := json.Marshal(v)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		_, err = w.f.Write(append(line, '\n'))
	}
	w.n++
	if w.err == nil {
		w.err = err
	}
}

// Count is the number of lines so far. It may be called at any time.
func (w *Writer[T]) Count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// Close gives the first error of any Put.
func (w *Writer[T]) Close() error {
	return errors.Join(w.err, w.f.Close())
}

// Write makes a file of these lines.
func Write[T any](path string, all []T) error {
	w, err := Create[T](path)
	if err != nil {
		return err
	}
	for _, v := range all {
		w.Put(v)
	}
	return w.Close()
}
