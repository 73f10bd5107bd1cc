package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"sekali/broker"
	"sekali/store"
)

// layer is one place settings come from, weakest first in the order of layers below.
type layer struct {
	source string
	values map[string]string
}

// configured is a configuration with the place of each value that is not a default.
type configured struct {
	broker.Config
	from     map[string]string // setting -> source
	warnings []string
}

// resolveConfig lays the layers over the defaults, weakest first: defaults < file < environment < --set < named flags.
// An unknown setting is an error; settings Kafka knows and this daemon has no use for are named in one warning, unless
// they ask for protection the daemon would then not give.
func resolveConfig(layers ...layer) (*configured, error) {
	c := &configured{Config: broker.Defaults(), from: map[string]string{}}
	values := map[string]string{}
	var idle []string
	for _, l := range layers {
		for _, name := range slices.Sorted(maps.Keys(l.values)) {
			if refusal := unsafeToIgnore(name, l.values[name]); refusal != "" {
				return nil, fmt.Errorf("%s: %s=%s: %s", l.source, name, l.values[name], refusal)
			}
			if !isSetting(name) {
				if !kafkaKnows(name) {
					return nil, fmt.Errorf("%s: unknown setting %s%s", l.source, name, nearest(name))
				}
				idle = append(idle, name)
				continue
			}
			for _, s := range rivals(name) {
				delete(values, s)
				delete(c.from, s)
			}
			values[name], c.from[name] = l.values[name], l.source
		}
	}
	if len(idle) > 0 {
		slices.Sort(idle)
		c.warnings = append(c.warnings, "Kafka settings without meaning here: "+strings.Join(slices.Compact(idle), ", "))
	}
	for _, name := range settingOrder(values) {
		if err := c.Set(name, values[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", c.from[name], err)
		}
	}
	return c, nil
}

// settingOrder is alphabetical, but listeners come before what is advertised for them.
func settingOrder(values map[string]string) []string {
	names := slices.Sorted(maps.Keys(values))
	slices.SortStableFunc(names, func(a, b string) int { return btoi(b == "listeners") - btoi(a == "listeners") })
	return names
}

func isSetting(name string) bool {
	return store.IsServerSetting(name) || broker.IsSetting(name)
}

// rivals are the other names of the same thing (log.retention.hours and log.retention.ms): in a stronger layer each of
// them takes the place of all.
func rivals(name string) []string {
	for _, s := range store.Settings() {
		if slices.Contains(s.Synonyms, name) {
			return s.Synonyms
		}
	}
	return []string{name}
}

// knownSettings are all server-wide names, sorted.
func knownSettings() []string {
	var names []string
	for _, s := range broker.Settings() {
		names = append(names, s.Name)
	}
	for _, s := range store.Settings() {
		names = append(names, s.Synonyms...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// nearest names a setting that differs little from a mistyped one.
func nearest(name string) string {
	best, at := "", len(name)/3+1
	for _, known := range knownSettings() {
		if d := distance(name, known); d < at {
			best, at = known, d
		}
	}
	if best == "" {
		return ""
	}
	return ", did you mean " + best + "?"
}

// distance counts the single-character edits between two names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := diagonal + btoi(a[i-1] != b[j-1])
			diagonal = row[j]
			row[j] = min(change, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}

// fileLayer reads a file in the form of Kafka's server.properties.
func fileLayer(path string) (layer, error) {
	l := layer{source: path}
	if path == "" {
		return l, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return l, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	l.values, err = parseProperties(f)
	if err != nil {
		return l, fmt.Errorf("%s: %w", path, err)
	}
	return l, nil
}

const envPrefix = "SEKALI_"

// envName is the variable of a setting: log.segment.bytes is SEKALI_LOG_SEGMENT_BYTES, and the prefix of our own
// settings is not said twice: sekali.durability is SEKALI_DURABILITY.
func envName(setting string) string {
	name := strings.TrimPrefix(setting, "sekali.")
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(name))
}

// envLayer takes the settings out of the environment. A variable with our prefix that names no setting is returned
// apart: container platforms make such variables for a service called sekali, so it is no error.
func envLayer(environ []string) (l layer, unknown []string) {
	l = layer{source: "environment", values: map[string]string{}}
	names := map[string]string{}
	for _, s := range knownSettings() {
		names[envName(s)] = s
	}
	for _, word := range environ {
		name, value, _ := strings.Cut(word, "=")
		if !strings.HasPrefix(name, envPrefix) {
			continue
		}
		if s, ok := names[name]; ok {
			l.values[s] = value
		} else {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return l, unknown
}
