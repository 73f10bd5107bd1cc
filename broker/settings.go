package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"sekali/store"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// settings holds the server-wide settings of a running node: what it was started with, and the changes made at run
// time, which are stored in the metadata and win (KIP-226). Changes for this node win over those for all nodes.
// Owner: the Server; any goroutine may read, changes are made one at a time.
type settings struct {
	static   Config // as Open completed it
	defaults Config // without any setting made
	level    *slog.LevelVar
	log      *slog.Logger
	store    *store.Store

	mu  sync.Mutex // held while a change is stored and applied
	now atomic.Pointer[liveSettings]
}

// liveSettings is one immutable state of the settings.
type liveSettings struct {
	conf          Config
	cluster, node map[string]string // changes made at run time, for all nodes and for this one
}

// newSettings returns settings without run-time changes. c has its defaults filled in, and defaults is what it would be
// had nothing been set.
func newSettings(c, defaults Config) *settings {
	st := &settings{static: c, defaults: defaults, level: c.LogLevel, log: c.Log}
	// The level a change falls back to is kept apart from the one that moves.
	st.static.LogLevel = new(slog.LevelVar)
	if c.LogLevel != nil {
		st.static.LogLevel.Set(c.LogLevel.Level())
	}
	st.now.Store(&liveSettings{conf: st.static})
	return st
}

// conf returns the settings that hold now. They are not to be changed.
func (st *settings) conf() *Config { return &st.now.Load().conf }

// attach loads the changes made at earlier run times from the opened store and applies them; later ones need it. A
// stored change that this version cannot take is left out and said in the log: it must not keep the node from starting.
func (st *settings) attach(s *store.Store) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.store = s
	st.static.NodeID = s.NodeID()
	usable := func(stored map[string]string) map[string]string {
		kept := map[string]string{}
		for name, value := range stored {
			if _, err := st.resolve(map[string]string{name: value}, nil); err != nil {
				st.log.Error("stored setting ignored", "setting", name, "value", value, "err", err)
				continue
			}
			kept[name] = value
		}
		return kept
	}
	live, err := st.resolve(usable(s.BrokerConfig("")), usable(s.BrokerConfig(st.nodeName())))
	if err != nil {
		return fmt.Errorf("broker: stored settings: %w", err)
	}
	st.apply(live)
	return nil
}

// nodeName is the resource name of this node.
func (st *settings) nodeName() string { return strconv.Itoa(int(st.static.NodeID)) }

// errReadOnly is wrapped by the *SettingError of a setting that cannot change while the server runs.
var errReadOnly = errors.New("broker: setting cannot change at run time")

// resolve computes what holds with these changes; the error is a *SettingError, or wraps errReadOnly.
func (st *settings) resolve(cluster, node map[string]string) (*liveSettings, error) {
	live := &liveSettings{conf: st.static, cluster: cluster, node: node}
	for _, changes := range []map[string]string{cluster, node} {
		for _, name := range slices.Sorted(maps.Keys(changes)) {
			if !isDynamic(name) {
				if _, known := settingNamed(name); known {
					return nil, fmt.Errorf("%w: %s", errReadOnly, name)
				}
				return nil, &SettingError{Name: name, Value: changes[name], Reason: "unknown setting"}
			}
			if err := live.conf.Set(name, changes[name]); err != nil {
				return nil, err
			}
		}
	}
	return live, nil
}

// isDynamic reports whether a setting may change at run time: those of the table that say so, and the defaults of topic
// settings by their first name.
func isDynamic(name string) bool {
	if s, ok := settingNamed(name); ok {
		return s.Dynamic
	}
	return slices.ContainsFunc(store.Settings(), func(t store.Setting) bool { return t.Server == name && name != "" })
}

// apply makes a state hold: topic defaults reach the running logs, the log level changes, and readers of conf see it.
func (st *settings) apply(live *liveSettings) {
	st.store.SetDefaults(live.conf.Store.Topic)
	old := st.now.Swap(live)
	if st.level != nil && getLevel(&old.conf) != getLevel(&live.conf) {
		st.level.Set(live.conf.LogLevel.Level())
	}
}

// changes returns the run-time changes for this node, or with all those for all nodes. The map is not to be changed.
func (st *settings) changes(all bool) map[string]string {
	if all {
		return st.now.Load().cluster
	}
	return st.now.Load().node
}

// change replaces the run-time changes for this node, or with all those for all nodes, by what fn makes of them. They
// are durable and hold when it returns; with validateOnly every check is made and nothing else. fn gets a map of its
// own.
func (st *settings) change(all, validateOnly bool, fn func(map[string]string) error) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	was := st.now.Load()
	cluster, node, resource := maps.Clone(was.cluster), maps.Clone(was.node), st.nodeName()
	set := &node
	if all {
		set, resource = &cluster, ""
	}
	if *set == nil {
		*set = map[string]string{}
	}
	if err := fn(*set); err != nil {
		return err
	}
	live, err := st.resolve(cluster, node)
	if err != nil || validateOnly {
		return err
	}
	put := func(map[string]string) (map[string]string, error) { return maps.Clone(*set), nil }
	if err := st.store.UpdateBroker(resource, put); err != nil {
		return fmt.Errorf("broker: store settings: %w", err)
	}
	st.apply(live)
	return nil
}

// sourced is a value with the place it comes from.
type sourced struct {
	name, value string
	source      kmsg.ConfigSource
}

// chain lists where the value of a server-wide setting comes from, the one that holds first: changed for this node,
// changed for all, set at start, built in. text is the built-in default of a topic setting.
func (st *settings) chain(name string, synonyms []string, text string) []sourced {
	live := st.now.Load()
	var all []sourced
	if v, ok := live.node[name]; ok {
		all = append(all, sourced{name, v, kmsg.ConfigSourceDynamicBrokerConfig})
	}
	if v, ok := live.cluster[name]; ok {
		all = append(all, sourced{name, v, kmsg.ConfigSourceDynamicDefaultBrokerConfig})
	}
	if s, ok := settingNamed(name); ok {
		at, def := s.get(&st.static), s.get(&st.defaults)
		if at != def {
			all = append(all, sourced{name, at, kmsg.ConfigSourceStaticBrokerConfig})
		}
		return append(all, sourced{name, def, kmsg.ConfigSourceDefaultConfig})
	}
	for _, n := range synonyms {
		if v, ok := st.static.Store.Topic.Set[n]; ok {
			all = append(all, sourced{n, v, kmsg.ConfigSourceStaticBrokerConfig})
		}
	}
	return append(all, sourced{name, text, kmsg.ConfigSourceDefaultConfig})
}
