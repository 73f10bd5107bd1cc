package segment

import "strconv"

// Suffixes of the files of a segment and of the stages they pass through (spec/on-disk.md 1).
const (
	LogSuffix     = ".log"
	IndexSuffix   = ".index"
	TimeSuffix    = ".timeindex"
	TxnSuffix     = ".txnindex"
	CutSuffix     = ".cut"
	CleanedSuffix = ".cleaned"
	SwapSuffix    = ".swap"
	DeletedSuffix = ".deleted"
	tmpSuffix     = ".tmp"
)

// nameDigits is the length of the base offset in a file name.
const nameDigits = 20

// kinds are the files of one segment in the order they are renamed: the log first, the others have no meaning
// without it.
var kinds = [...]string{LogSuffix, IndexSuffix, TimeSuffix, TxnSuffix}

// Name returns the file name of a base offset: 20 digits and the suffix.
func Name(base int64, suffix string) string {
	var digits [nameDigits]byte
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = byte('0' + base%10)
		base /= 10
	}
	return string(digits[:]) + suffix
}

// ParseName splits a file name into base offset and everything behind the 20 digits. ok is false for a name of another
// form.
func ParseName(name string) (base int64, suffix string, ok bool) {
	if len(name) < nameDigits {
		return 0, "", false
	}
	for _, c := range []byte(name[:nameDigits]) {
		if c < '0' || c > '9' {
			return 0, "", false
		}
	}
	base, err := strconv.ParseInt(name[:nameDigits], 10, 64)
	return base, name[nameDigits:], err == nil
}
