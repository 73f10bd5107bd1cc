package broker

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// feature is one feature of the node (KIP-584): the levels it knows, and the one that holds, which is fixed.
type feature struct {
	name            string
	min, max, level int16
}

// featureEpoch stays the same while features do and was raised whenever they changed: clients keep the answer with the
// highest epoch they ever saw.
const featureEpoch = 2

// features is the one table of features. The metadata level is that of Apache Kafka 4.4, whose administration tools
// look at it; transaction.version 2 turns on the transactions of KIP-890 in clients, group.version 1 the consumer
// protocol of KIP-848.
var features = []feature{
	{"group.version", 0, 1, 1},
	{"metadata.version", 7, 33, 33},
	{"transaction.version", 0, 2, 2},
}

// tellFeatures fills in the features of an ApiVersions answer. Clients that ask in version 3 refuse a least level of 0.
func tellFeatures(version int16, resp *kmsg.ApiVersionsResponse) {
	resp.FinalizedFeaturesEpoch = featureEpoch
	for _, f := range features {
		if version > 3 || f.min > 0 {
			resp.SupportedFeatures = append(resp.SupportedFeatures, kmsg.ApiVersionsResponseSupportedFeature{
				Name: f.name, MinVersion: f.min, MaxVersion: f.max})
		}
		resp.FinalizedFeatures = append(resp.FinalizedFeatures, kmsg.ApiVersionsResponseFinalizedFeature{
			Name: f.name, MinVersionLevel: f.level, MaxVersionLevel: f.level})
	}
}

// The kinds of change UpdateFeatures knows from version 1 on.
const (
	featureUpgrade         = 1
	featureDowngrade       = 2
	featureUnsafeDowngrade = 3
)

// handleUpdateFeatures checks changes of feature levels as Kafka does and refuses those that would change something:
// each feature has one level here. Versions 0 and 1 answer for each feature, later ones for all together.
func (s *Server) handleUpdateFeatures(r *request) kmsg.Response {
	req := r.msg.(*kmsg.UpdateFeaturesRequest)
	resp := req.ResponseKind().(*kmsg.UpdateFeaturesResponse)
	seen := map[string]bool{}
	for _, u := range req.FeatureUpdates {
		no := again(seen[u.Feature])
		if seen[u.Feature] = true; no == nil {
			no = checkFeature(&u, req.Version)
		}
		out := kmsg.UpdateFeaturesResponseResult{Feature: u.Feature}
		if no != nil {
			out.ErrorCode, out.ErrorMessage = no.code, text(no.why)
		}
		if no != nil && req.Version >= 2 && resp.ErrorCode == 0 {
			resp.ErrorCode = no.code
			resp.ErrorMessage = text("The update failed for all features: " + no.why)
		}
		resp.Results = append(resp.Results, out)
	}
	return resp
}

func checkFeature(u *kmsg.UpdateFeaturesRequestFeatureUpdate, version int16) *refused {
	how := u.UpgradeType
	if version == 0 {
		how = featureUpgrade
		if u.AllowDowngrade {
			how = featureDowngrade
		}
	}
	bad := func(why string) *refused {
		return refuse(kerr.InvalidUpdateVersion,
			fmt.Sprintf("Invalid update version %d for feature %s. %s", u.MaxVersionLevel, clip(u.Feature), why))
	}
	i := slices.IndexFunc(features, func(f feature) bool { return f.name == u.Feature })
	switch level := u.MaxVersionLevel; {
	case how < featureUpgrade || how > featureUnsafeDowngrade:
		return bad("The controller does not support the given upgrade type.")
	case level < 0:
		return bad("A feature version cannot be less than 0.")
	case i < 0:
		return bad("This node does not know the feature.")
	case level != 0 && level < features[i].min || level > features[i].max:
		return bad(fmt.Sprintf("This node supports versions %d-%d.", features[i].min, features[i].max))
	case level < features[i].level && how == featureUpgrade:
		return bad("Can't downgrade the version of this feature without setting the upgrade type to either safe or " +
			"unsafe downgrade.")
	case level != features[i].level:
		return bad(fmt.Sprintf("On this node its version is always %d.", features[i].level))
	}
	return nil
}
