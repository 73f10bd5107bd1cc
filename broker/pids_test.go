package broker

import (
	"sync"
	"testing"

	"sekali/internal/vfs"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func initPID(version int16) *kmsg.InitProducerIDRequest {
	r := kmsg.NewPtrInitProducerIDRequest()
	r.ProducerID, r.ProducerEpoch, r.TransactionTimeoutMillis = -1, -1, 60_000
	return at(r, version)
}

func TestInitProducerID(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	last := int64(-1)
	for version := int16(0); version <= 5; version++ {
		got := ask[*kmsg.InitProducerIDResponse](c, initPID(version))
		if got.ErrorCode != 0 || got.ProducerID <= last || got.ProducerEpoch != 0 {
			t.Fatalf("version %d: %+v after id %d", version, got, last)
		}
		last = got.ProducerID
	}
	for _, tc := range []struct {
		what  string
		id    *string
		pid   int64
		epoch int16
		want  int16
	}{
		{"transactional, empty", text(""), -1, -1, 42},
		{"transactional, before there is a coordinator", text("payments"), -1, -1, 14},
		{"id without epoch", nil, 5, -1, 42},
		{"epoch without id", nil, -1, 0, 42},
		{"id and epoch of its own: a fresh one all the same", nil, 5, 3, 0},
	} {
		r := initPID(5)
		r.TransactionalID, r.ProducerID, r.ProducerEpoch = tc.id, tc.pid, tc.epoch
		got := ask[*kmsg.InitProducerIDResponse](c, r)
		if got.ErrorCode != tc.want {
			t.Errorf("%s: error %d, want %d", tc.what, got.ErrorCode, tc.want)
		}
		if tc.want != 0 && (got.ProducerID != -1 || got.ProducerEpoch != -1) {
			t.Errorf("%s: a refusal with %+v", tc.what, got)
		}
		if tc.want == 0 && (got.ProducerID <= last || got.ProducerEpoch != 0) {
			t.Errorf("%s: %+v after id %d", tc.what, got, last)
		}
	}
}

// Case B6: ids are never given out twice, whatever dies in between.
func TestCaseB6ProducerIDsAreUnique(t *testing.T) {
	const rounds, clients, each = 6, 8, 400
	fs := vfs.NewMem()
	seen := map[int64]int{}
	total := 0
	for round := range rounds {
		n := startNodeOn(t, fs, func(c *Config) { c.PIDBlock = 100 })
		got := make([][]int64, clients)
		var wg sync.WaitGroup
		for i := range clients {
			c := n.dial()
			wg.Go(func() {
				for k := range each {
					if k%50 == 0 { // a transactional one in between takes no id
						r := initPID(4)
						r.TransactionalID = text("t")
						_, _ = c.try(r)
					}
					resp, err := c.try(initPID(int16(k % 6)))
					if err != nil {
						return // killed
					}
					if r := resp.(*kmsg.InitProducerIDResponse); r.ErrorCode == 0 {
						got[i] = append(got[i], r.ProducerID)
					} else if r.ErrorCode != 14 {
						t.Errorf("error %d, want none or 14", r.ErrorCode)
					}
				}
			})
		}
		if round%2 == 0 {
			wg.Wait()
			fs = fs.Crash(vfs.CrashPlan{Seed: uint64(round)})
		} else {
			fs = fs.Kill() // while they ask
			wg.Wait()
		}
		n.abandon()
		for _, ids := range got {
			for _, id := range ids {
				if before, twice := seen[id]; twice {
					t.Fatalf("id %d given in round %d and in round %d", id, before, round)
				}
				seen[id] = round
				total++
			}
		}
	}
	if total < rounds/2*clients*each {
		t.Errorf("%d ids, want at least those of the rounds that were not cut short", total)
	}
}

func TestFindCoordinator(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	for version := int16(0); version <= 6; version++ {
		for _, tc := range []struct {
			kind int8
			want int16
		}{{0, 0}, {1, 0}, {2, 42}, {3, 42}, {-1, 42}} {
			if version == 0 && tc.kind != 0 {
				continue // has groups only
			}
			r := kmsg.NewPtrFindCoordinatorRequest()
			r.CoordinatorType, r.CoordinatorKey, r.CoordinatorKeys = tc.kind, "one", []string{"one", "two", ""}
			resp := ask[*kmsg.FindCoordinatorResponse](c, at(r, version))
			got := resp.Coordinators
			if version < 4 {
				got = []kmsg.FindCoordinatorResponseCoordinator{{NodeID: resp.NodeID, Host: resp.Host, Port: resp.Port,
					ErrorCode: resp.ErrorCode}}
			} else if len(got) != 3 || got[0].Key != "one" || got[1].Key != "two" || got[2].Key != "" {
				t.Fatalf("version %d: %+v, want one answer for each key", version, got)
			}
			for _, g := range got {
				ok := g.NodeID == n.nodeID && g.Host == "127.0.0.1" && g.Port > 0
				if tc.want != 0 {
					ok = g.NodeID == -1 && g.Host == "" && g.Port == -1
				}
				if g.ErrorCode != tc.want || !ok {
					t.Errorf("version %d, type %d: %+v, want error %d", version, tc.kind, g, tc.want)
				}
			}
		}
	}
	r := kmsg.NewPtrFindCoordinatorRequest()
	if resp := ask[*kmsg.FindCoordinatorResponse](c, at(r, 6)); len(resp.Coordinators) != 0 {
		t.Errorf("no keys: %+v", resp.Coordinators)
	}
}
