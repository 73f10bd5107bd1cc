package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sekali/broker"
	"sekali/internal/vfs"
	"sekali/meta"
	"sekali/store"
)

// printedSetting is one line of --print-config.
type printedSetting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// effective lists every setting with its value and where it comes from. Changes made at run time are stored in the data
// directory and win over all else.
func effective(c *configured) ([]printedSetting, error) {
	changed, err := storedChanges(&c.Config)
	if err != nil {
		return nil, err
	}
	conf := c.Config
	source := func(names ...string) string {
		for _, n := range names {
			if _, ok := changed[n]; ok {
				return "changed at run time"
			}
		}
		for _, n := range names {
			if s, ok := c.from[n]; ok {
				return s
			}
		}
		return "default"
	}
	for name, value := range changed {
		if err := conf.Set(name, value); err != nil {
			return nil, fmt.Errorf("stored change: %w", err)
		}
	}
	var all []printedSetting
	for _, s := range broker.Settings() {
		all = append(all, printedSetting{s.Name, conf.Get(s.Name), source(s.Name)})
	}
	for _, s := range store.Settings() {
		if s.Server != "" {
			all = append(all, printedSetting{s.Server, conf.Store.Topic.Value(s.Name), source(s.Synonyms...)})
		}
	}
	slices.SortFunc(all, func(a, b printedSetting) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// storedChanges are the settings changed at run time that the data directory remembers, those for this node over those
// for all. It needs no daemon and changes nothing; a directory that does not exist remembers none.
func storedChanges(c *broker.Config) (map[string]string, error) {
	fs := vfs.OS()
	if ok, err := vfs.Exists(fs, c.Store.Dir); err != nil || !ok {
		return nil, err
	}
	state, _, err := meta.Read(c.Store.Dir, fs)
	if err != nil {
		return nil, err
	}
	_, servers, err := store.ReadCatalog(state)
	if err != nil {
		return nil, err
	}
	node := c.NodeID
	if node == 0 {
		if id, err := store.ReadIdentity(fs, c.Store.Dir); err == nil {
			node = id.NodeID
		}
	}
	changed := maps.Clone(servers[""])
	if changed == nil {
		changed = map[string]string{}
	}
	maps.Copy(changed, servers[strconv.Itoa(int(node))])
	return changed, nil
}

// printConfig writes the settings so that the output is a configuration file that means the same.
func printConfig(w io.Writer, c *configured, asJSON bool) error {
	all, err := effective(c)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(w, all)
	}
	for _, s := range all {
		if _, err := fmt.Fprintf(w, "# %s\n%s=%s\n", s.Source, s.Name, escapeProperty(s.Value)); err != nil {
			return err
		}
	}
	return nil
}

func escapeProperty(v string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\t", `\t`, "\r", `\r`).Replace(v)
}
