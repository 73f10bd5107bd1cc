package main

import (
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"sekali/batch"
	"sekali/broker"
	"sekali/internal/vfs"
	"sekali/store"
)

// crafted is one batch of n records of a producer.
func crafted(pid int64, epoch int16, seq int32, n int, attrs batch.Attrs) batch.View {
	b := batch.Builder{BaseTime: homeWall}
	for range n {
		b.Add(batch.Record{Value: []byte("v")})
	}
	return b.Done(attrs, pid, epoch, seq)
}

func late(v batch.View, ms int64) batch.View {
	v.StampMaxTime(ms)
	return v
}

// mended gives a changed batch its checksum back.
func mended(v batch.View) batch.View {
	binary.BigEndian.PutUint32(v[17:], crc32.Checksum(v[21:], crc32.MakeTable(crc32.Castagnoli)))
	return v
}

// TestCheckContent: batches that are whole and yet break a rule of what may be stored; they come in by the way of a
// replica, which trusts its leader.
func TestCheckContent(t *testing.T) {
	day := (24 * time.Hour).Milliseconds()
	txn := batch.AttrTransactional
	for _, c := range []struct {
		name string
		log  []batch.View
		rule string // "": all of it is right
		says string
	}{
		{"in order", []batch.View{crafted(1, 0, 0, 3, 0), crafted(1, 0, 3, 2, 0), crafted(2, 5, 0, 1, 0)}, "", ""},
		{"across the wrap", []batch.View{crafted(1, 0, batch.SeqAdd(0, -3), 5, 0), crafted(1, 0, 2, 1, 0)}, "", ""},
		{"plain batches", []batch.View{crafted(-1, -1, -1, 3, 0), crafted(-1, -1, -1, 3, 0)}, "", ""},
		{"an unknown producer goes on", []batch.View{crafted(1, 0, 77, 3, 0), crafted(1, 0, 80, 3, 0)}, "", ""},
		{"a higher epoch begins at 0", []batch.View{crafted(1, 0, 0, 3, 0), crafted(1, 1, 0, 3, 0)}, "", ""},
		{"stored twice", []batch.View{crafted(1, 0, 0, 3, 0), crafted(1, 0, 0, 3, 0)}, "I6", "stored already, at offset 0"},
		{"stored twice, long ago", []batch.View{crafted(1, 0, 0, 2, 0), crafted(1, 0, 2, 2, 0), crafted(1, 0, 4, 2, 0),
			crafted(1, 0, 6, 2, 0), crafted(1, 0, 8, 2, 0), crafted(1, 0, 10, 2, 0), crafted(1, 0, 1, 2, 0)},
			"I6", "stored already, below"},
		{"partly twice", []batch.View{crafted(1, 0, 0, 3, 0), crafted(1, 0, 2, 3, 0)}, "I6", "3 had to follow"},
		{"a gap", []batch.View{crafted(1, 0, 0, 3, 0), crafted(1, 0, 4, 3, 0)}, "I6", "first sequence is 4, but 3"},
		{"a gap at the wrap", []batch.View{crafted(1, 0, batch.SeqAdd(0, -3), 3, 0), crafted(1, 0, 1, 1, 0)}, "I6", "but 0"},
		{"a higher epoch in the middle", []batch.View{crafted(1, 0, 0, 3, 0), crafted(1, 1, 3, 3, 0)}, "I6", "but 0"},
		{"an epoch falls", []batch.View{crafted(1, 3, 0, 3, 0), crafted(1, 2, 0, 3, 0)}, "I6", "epoch lies below 3"},
		{"forgotten in between", []batch.View{crafted(1, 0, 0, 3, 0), late(crafted(1, 0, 9, 3, 0), homeWall+day)},
			"I3", "largest time"}, // the gap itself is explained
		{"a plain batch inside", []batch.View{crafted(1, 0, 0, 3, txn), crafted(1, 0, 3, 1, 0)}, "I6", "no part of"},
		{"a transaction goes on", []batch.View{crafted(1, 0, 0, 3, txn), crafted(1, 0, 3, 1, txn),
			batch.View(batch.AppendMarker(nil, 0, 0, batch.Marker{PID: 1, Commit: true, Time: homeWall})),
			crafted(1, 0, 4, 1, 0)}, "", ""},
		{"a marker of an older epoch", []batch.View{crafted(1, 3, 0, 3, txn),
			batch.View(batch.AppendMarker(nil, 0, 0, batch.Marker{PID: 1, Epoch: 2, Time: homeWall}))}, "I6", "epoch 2"},
		{"a record that is none", []batch.View{func() batch.View {
			v := crafted(-1, -1, -1, 3, 0)
			v[batch.HeaderLen] = 0x7f
			return mended(v)
		}()}, "I3", "record 0"},
		{"a wrong largest time", []batch.View{late(crafted(-1, -1, -1, 3, 0), homeWall+5)}, "I3", "largest time"},
		{"offsets without records", []batch.View{func() batch.View {
			v := crafted(-1, -1, -1, 3, 0)
			binary.BigEndian.PutUint32(v[23:], 4)
			return mended(v)
		}(), crafted(-1, -1, -1, 1, 0)}, "I4", "3 records for 5 offsets"},
	} {
		m := vfs.NewMem()
		h := mustOpenHome(t, m)
		if err := h.create("t", 1, nil); err != nil {
			t.Fatal(err)
		}
		l, err := h.log("t", 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range c.log {
			v.Stamp(l.Offsets().End, 1)
			if err := l.AppendAsFollower(v); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		h.mustClose(t)
		rep := checkHome(t, m)
		found := damages(rep)
		if c.rule == "" && len(found) > 0 || c.rule != "" && len(found) == 0 {
			t.Errorf("%s: %s", c.name, said(rep))
			continue
		}
		for _, f := range found {
			if f.Rule != c.rule || !strings.Contains(f.What, c.says) || f.Position < 0 || f.Offset < 0 {
				t.Errorf("%s: %+v", c.name, f)
			}
		}
	}
}

// TestCheckLeftovers: what interrupted housekeeping leaves, and what is not ours, is told and is no damage (case F7).
func TestCheckLeftovers(t *testing.T) {
	all := furnished(t)
	const uuid = "0123456789abcdef0123456789abcdef"
	dir := homeDir + "/" + topicOrders + "-0/"
	extra := map[string]string{
		dir + "00000000000000099999.log":                                  "an empty segment",
		dir + "00000000000000000340.snapshot.tmp":                         "leftover",
		dir + "00000000000000000001.log.deleted":                          "leftover",
		dir + "00000000000000000001.index.7.deleted":                      "leftover",
		dir + "00000000000000000007.timeindex":                            "an index without its segment",
		dir + "00000000000000000002.log.cleaned":                          "leftover",
		dir + "leader-epoch-checkpoint.tmp":                               "unfinished",
		dir + "notes.txt":                                                 "not a file of the partition",
		homeDir + "/x.y-z-1." + uuid + "-delete/00000000000000000000.log": "deleted partition",
		homeDir + "/x-1." + uuid + "-stray/00000000000000000000.log":      "set aside",
		homeDir + "/nobody-0/partition.metadata":                          "holds no record",
		homeDir + "/lost+found/x":                                         "left alone",
		homeDir + "/replication-offset-checkpoint.tmp":                    "unfinished",
	}
	for name := range extra {
		all[name] = []byte("x")
	}
	all[dir+"00000000000000099999.log"] = nil
	rep := checkHome(t, laidOut(t, all))
	if rep.Damage > 0 || rep.Notes != len(extra) {
		t.Fatalf("%d notes, want %d\n%s", rep.Notes, len(extra), said(rep))
	}
	text := said(rep)
	for name, what := range extra {
		name = strings.TrimSuffix(name, "/00000000000000000000.log")
		for _, cut := range []string{"/partition.metadata", "/x"} {
			if strings.HasPrefix(name, homeDir+"/nobody") || strings.HasPrefix(name, homeDir+"/lost") {
				name = strings.TrimSuffix(name, cut)
			}
		}
		i := strings.Index(text, name+": ")
		if i < 0 || !strings.Contains(strings.SplitN(text[i:], "\n", 2)[0], what) {
			t.Errorf("%s: nothing about %q\n", name, what)
		}
	}
}

// TestCheckTail: after an unclean stop a tail above the durable mark is told, not blamed; the same tail after a clean
// stop is damage.
func TestCheckTail(t *testing.T) {
	all := killed(t)
	var name string
	for f := range all {
		if strings.HasPrefix(f, homeDir+"/"+topicStamp+"-0/") && strings.HasSuffix(f, ".log") && f > name {
			name = f
		}
	}
	v := crafted(7, 0, 240, 3, 0)
	v.Stamp(240, 1)
	all[name] = append(all[name], v[:len(v)-5]...)
	rep := checkHome(t, laidOut(t, all))
	if rep.Damage > 0 || rep.TailBytes != int64(len(v)-5) || rep.CleanStop {
		t.Fatal(said(rep))
	}
	if text := said(rep); !strings.Contains(text, "tails of 86 bytes will be cut at the next start") &&
		!strings.Contains(text, "unclean: a tail of") {
		t.Error(text)
	}
	h := mustOpenHome(t, laidOut(t, all))
	if got := h.s.Recovery().CutBytes; got != rep.TailBytes {
		t.Errorf("the start cut %d bytes, the check said %d", got, rep.TailBytes)
	}
	h.mustClose(t)
	all[homeDir+"/"+store.CleanFile] = []byte(cleanTexts[0])
	if rep := checkHome(t, laidOut(t, all), topicStamp+"-0"); rep.Damage == 0 {
		t.Error(said(rep))
	}
}

// TestCheckKafkaDirectory: a directory that has no marker of ours is judged by its directories, and its high watermarks
// count for nothing.
func TestCheckKafkaDirectory(t *testing.T) {
	all := furnished(t)
	for _, name := range []string{store.FormatFile, "sekali.meta"} {
		delete(all, homeDir+"/"+name)
	}
	all[homeDir+"/"+store.MarkFile] = []byte("0\n1\norders 0 99999999\n")
	rep := checkHome(t, laidOut(t, all))
	if rep.Damage > 0 || len(rep.Partitions) != 6 {
		t.Fatal(said(rep))
	}
}

// TestCheckOnly: one partition alone, and none that does not exist.
func TestCheckOnly(t *testing.T) {
	m := laidOut(t, furnished(t))
	if rep := checkHome(t, m, topicStamp+"-0"); len(rep.Partitions) != 1 || rep.Partitions[0].name() != topicStamp+"-0" {
		t.Error(said(rep))
	}
	k := checker{fs: m, dir: homeDir, conf: broker.Defaults(), only: []string{"nobody-0"}}
	if _, err := k.check(); err == nil || !strings.Contains(err.Error(), "nobody-0") {
		t.Error(err)
	}
}
