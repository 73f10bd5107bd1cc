package batch

import (
	"fmt"
	"strings"
	"testing"
)

// shapes are the record counts the walk is budgeted for, each in 16 KiB.
var shapes = []int{16, 128, 682}

// fitting is a batch of about 16 KiB with n records and a producer.
func fitting(codec uint8, n int) View { return sized(codec, n, text(16<<10-HeaderLen-9*n)) }

func TestValidateDoesNotAllocate(t *testing.T) {
	for _, codec := range []uint8{None, LZ4, Zstd} {
		for _, n := range shapes {
			for _, x := range []View{fitting(codec, n), sized(codec, n, text(200<<10))} {
				l := client.Times(testTime, 1<<40, 1<<40)
				got := testing.AllocsPerRun(200, func() {
					if _, err := x.Validate(l); err != nil {
						t.Fatal(err)
					}
				})
				if got != 0 && !underRace {
					t.Errorf("%s, %d records: %v allocations", codecNames[codec], n, got)
				}
			}
		}
	}
	// What a lz4 library writes by default, blocks of up to 4 MiB with a checksum of the content.
	v := repack(fitting(None, 16), LZ4, framed()(t, fitting(None, 16)[HeaderLen:]))
	if got := testing.AllocsPerRun(200, func() { _, _ = v.Validate(client) }); got != 0 && !underRace {
		t.Errorf("lz4 by default: %v allocations", got)
	}
}

// Floor is the checksum alone, measured on the same bytes in the same run.
func BenchmarkValidate(b *testing.B) {
	for codec := range Zstd + 1 {
		for _, n := range shapes {
			v := fitting(codec, n)
			name := fmt.Sprintf("%s/%d", codecNames[codec], n)
			b.Run(name+"/floor", func(b *testing.B) {
				b.SetBytes(int64(len(v)))
				for b.Loop() {
					_ = v.checksum()
				}
			})
			b.Run(name+"/deep", func(b *testing.B) {
				b.SetBytes(int64(len(v)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := v.Validate(client); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// What one hostile batch costs.
func BenchmarkBomb(b *testing.B) {
	for _, x := range bombs(b) {
		v := bombView(x)
		l := client.with(func(l *Limits) { l.BytesMax, l.DecodedMax = 0, x.limit })
		b.Run(strings.ReplaceAll(x.name, " ", "_"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Validate(l); err == nil {
					b.Fatal("accepted")
				}
			}
		})
	}
}
