package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestACLsAreDisabled(t *testing.T) {
	c := startNode(t).dial()
	for version := int16(1); version <= 3; version++ {
		d := kmsg.NewPtrDescribeACLsRequest()
		d.ResourceType, d.ResourcePatternType, d.Operation, d.PermissionType = 1, 1, 1, 1
		if resp := ask[*kmsg.DescribeACLsResponse](c, at(d, version)); resp.ErrorCode != 54 || resp.ErrorMessage == nil ||
			len(resp.Resources) != 0 {
			t.Errorf("describe version %d: %+v", version, resp)
		}
		m := kmsg.NewPtrCreateACLsRequest()
		m.Creations = make([]kmsg.CreateACLsRequestCreation, 2)
		if resp := ask[*kmsg.CreateACLsResponse](c, at(m, version)); len(resp.Results) != 2 ||
			resp.Results[0].ErrorCode != 54 || resp.Results[1].ErrorCode != 54 {
			t.Errorf("create version %d: %+v", version, resp)
		}
		r := kmsg.NewPtrDeleteACLsRequest()
		r.Filters = make([]kmsg.DeleteACLsRequestFilter, 3)
		if resp := ask[*kmsg.DeleteACLsResponse](c, at(r, version)); len(resp.Results) != 3 ||
			resp.Results[2].ErrorCode != 54 || len(resp.Results[2].MatchingACLs) != 0 {
			t.Errorf("delete version %d: %+v", version, resp)
		}
	}
}

func TestDescribeClientQuotas(t *testing.T) {
	c := startNode(t).dial()
	name := "x"
	type component = kmsg.DescribeClientQuotasRequestComponent
	for what, tc := range map[string]struct {
		components []component
		want       int16
	}{
		"all":               {nil, 0},
		"a user":            {[]component{{EntityType: "user", MatchType: 0, Match: &name}}, 0},
		"default client":    {[]component{{EntityType: "client-id", MatchType: 1}, {EntityType: "user", MatchType: 2}}, 0},
		"empty type":        {[]component{{MatchType: 1}}, 42},
		"twice":             {[]component{{EntityType: "user", MatchType: 1}, {EntityType: "user", MatchType: 2}}, 42},
		"unknown type":      {[]component{{EntityType: "planet", MatchType: 1}}, 35},
		"exact nothing":     {[]component{{EntityType: "user", MatchType: 0}}, 42},
		"default something": {[]component{{EntityType: "user", MatchType: 1, Match: &name}}, 42},
		"unknown match":     {[]component{{EntityType: "user", MatchType: 3}}, 42},
		"ip and user":       {[]component{{EntityType: "ip", MatchType: 1}, {EntityType: "user", MatchType: 2}}, 42},
	} {
		for version := int16(0); version <= 1; version++ {
			r := kmsg.NewPtrDescribeClientQuotasRequest()
			r.Components = tc.components
			resp := ask[*kmsg.DescribeClientQuotasResponse](c, at(r, version))
			if resp.ErrorCode != tc.want || len(resp.Entries) != 0 || (resp.Entries == nil) != (tc.want != 0) {
				t.Errorf("%s version %d: %+v", what, version, resp)
			}
		}
	}
}

func TestAlterClientQuotas(t *testing.T) {
	c := startNode(t).dial()
	name := "x"
	entity := []kmsg.AlterClientQuotasRequestEntryEntity{{Type: "user", Name: &name}}
	for version := int16(0); version <= 1; version++ {
		r := kmsg.NewPtrAlterClientQuotasRequest()
		r.Entries = []kmsg.AlterClientQuotasRequestEntry{
			{Entity: entity, Ops: []kmsg.AlterClientQuotasRequestEntryOp{{Key: "producer_byte_rate", Value: 1}}},
			{Entity: entity, Ops: []kmsg.AlterClientQuotasRequestEntryOp{{Key: "producer_byte_rate", Remove: true}}},
			{},
		}
		resp := ask[*kmsg.AlterClientQuotasResponse](c, at(r, version))
		for i, want := range []int16{42, 0, 42} {
			e := resp.Entries[i]
			if e.ErrorCode != want || (e.ErrorMessage != nil) != (want != 0) || i < 2 && *e.Entity[0].Name != name {
				t.Errorf("version %d entry %d: %+v", version, i, e)
			}
		}
	}
}

func TestScramUsers(t *testing.T) {
	c := startNode(t).dial()
	d := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
	all := ask[*kmsg.DescribeUserSCRAMCredentialsResponse](c, at(d, 0))
	if all.ErrorCode != 0 || len(all.Results) != 0 {
		t.Errorf("all: %+v", all)
	}
	for _, u := range []string{"a", "b", "b"} {
		d.Users = append(d.Users, kmsg.DescribeUserSCRAMCredentialsRequestUser{Name: u})
	}
	resp := ask[*kmsg.DescribeUserSCRAMCredentialsResponse](c, at(d, 0))
	if len(resp.Results) != 2 || resp.Results[0].ErrorCode != 91 || resp.Results[1].ErrorCode != 92 {
		t.Errorf("named: %+v", resp)
	}
	a := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	a.Deletions = []kmsg.AlterUserSCRAMCredentialsRequestDeletion{{Name: "a", Mechanism: 1}, {Name: "x", Mechanism: 9}}
	a.Upsertions = []kmsg.AlterUserSCRAMCredentialsRequestUpsertion{{Name: "b", Mechanism: 2, Iterations: 4096},
		{Name: "", Mechanism: 2}, {Name: "c", Mechanism: 3}, {Name: "a", Mechanism: 1}}
	got := map[string]int16{}
	for _, r := range ask[*kmsg.AlterUserSCRAMCredentialsResponse](c, at(a, 0)).Results {
		got[r.User] = r.ErrorCode
	}
	for user, want := range map[string]int16{"a": 92, "x": 33, "b": 93, "": 93, "c": 33} {
		if got[user] != want {
			t.Errorf("user %q: %d, want %d", user, got[user], want)
		}
	}
	if len(got) != 5 {
		t.Errorf("answers %v", got)
	}
}
