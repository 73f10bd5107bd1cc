package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// textLine is one entry of a checkpoint file and where it begins.
type textLine struct {
	pos    int64
	fields []string
}

// textFault is a text file that does not say what it must, and where.
type textFault struct {
	pos int64
	why string
}

func (e *textFault) Error() string { return e.why }

// checkpointLines reads the frame all of Kafka's checkpoint files have: a line with the version 0, one with the number
// of entries, then so many lines of the given number of fields. An empty file has no entries. The entries before a
// fault are returned with it.
func checkpointLines(b []byte, fields int) (lines []textLine, fault *textFault) {
	if len(b) == 0 {
		return nil, nil
	}
	var count int64
	pos := int64(0)
	for n := 0; len(b) > 0; n++ {
		line, rest, ended := bytes.Cut(b, []byte{'\n'})
		text := strings.TrimRight(string(line), "\r")
		switch {
		case !ended:
			return lines, &textFault{pos, "the last line does not end"}
		case n == 0 && strings.TrimSpace(text) != "0":
			return nil, &textFault{pos, "version " + strconv.Quote(clip(text)) + ", not 0"}
		case n == 1:
			c, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31)
			if err != nil {
				return nil, &textFault{pos, strconv.Quote(clip(text)) + " is no number of entries"}
			}
			count = int64(c)
		case n > 1:
			f := strings.Fields(text)
			if len(f) != fields {
				return lines, &textFault{pos, fmt.Sprintf("%q has %d fields, not %d", clip(text), len(f), fields)}
			}
			lines = append(lines, textLine{pos, f})
		}
		pos += int64(len(line)) + 1
		b = rest
	}
	if int64(len(lines)) != count {
		return lines, &textFault{pos, fmt.Sprintf("%d entries, the second line says %d", len(lines), count)}
	}
	return lines, nil
}

// clip keeps what is shown of a damaged line short.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// offsetLine is one entry of an offset file.
type offsetLine struct {
	pos       int64
	topic     string
	partition int32
	offset    int64
}

// decodeOffsetLines reads recovery-point-offset-checkpoint and its like.
func decodeOffsetLines(b []byte) (out []offsetLine, fault *textFault) {
	lines, fault := checkpointLines(b, 3)
	type key struct {
		topic     string
		partition int32
	}
	seen := map[key]bool{}
	for _, l := range lines {
		n, err1 := strconv.ParseUint(l.fields[1], 10, 31)
		at, err2 := strconv.ParseInt(l.fields[2], 10, 64)
		k := key{l.fields[0], int32(n)}
		switch {
		case err1 != nil || err2 != nil || at < 0:
			return out, &textFault{l.pos, "partition " + strconv.Quote(clip(l.fields[1])) + ", offset " +
				strconv.Quote(clip(l.fields[2]))}
		case seen[k]:
			return out, &textFault{l.pos, fmt.Sprintf("%s %d occurs twice", k.topic, k.partition)}
		}
		seen[k] = true
		out = append(out, offsetLine{l.pos, k.topic, k.partition, at})
	}
	return out, fault
}

// epochLine is one entry of leader-epoch-checkpoint: a leader epoch and the offset of its first batch.
type epochLine struct {
	pos   int64
	epoch int32
	start int64
}

// decodeEpochLines reads leader-epoch-checkpoint: epochs and offsets both rise.
func decodeEpochLines(b []byte) (out []epochLine, fault *textFault) {
	lines, fault := checkpointLines(b, 2)
	for _, l := range lines {
		epoch, err1 := strconv.ParseInt(l.fields[0], 10, 32)
		start, err2 := strconv.ParseInt(l.fields[1], 10, 64)
		if err1 != nil || err2 != nil || epoch < 0 || start < 0 {
			return out, &textFault{l.pos, "epoch " + strconv.Quote(clip(l.fields[0])) + ", offset " +
				strconv.Quote(clip(l.fields[1]))}
		}
		if n := len(out); n > 0 && (int32(epoch) <= out[n-1].epoch || start <= out[n-1].start) {
			return out, &textFault{l.pos, fmt.Sprintf("epoch %d from offset %d does not follow epoch %d from %d",
				epoch, start, out[n-1].epoch, out[n-1].start)}
		}
		out = append(out, epochLine{l.pos, int32(epoch), start})
	}
	return out, fault
}

// encodeEpochLines is what decodeEpochLines reads.
func encodeEpochLines(list []epochLine) []byte {
	b := fmt.Appendf(nil, "0\n%d\n", len(list))
	for _, e := range list {
		b = fmt.Appendf(b, "%d %d\n", e.epoch, e.start)
	}
	return b
}
