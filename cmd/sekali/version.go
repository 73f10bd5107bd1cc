package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
)

// versionCmd says what this binary is.
type versionCmd struct {
	JSON bool `name:"json" help:"One JSON object."`
}

// build describes a binary: its version or revision, and what made it.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisBuild() build {
	b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Revision = s.Value
			}
		}
	}
	if b.Version == "" {
		b.Version = "devel"
		if len(b.Revision) >= 12 {
			b.Version += "-" + b.Revision[:12]
		}
	}
	return b
}

// Run prints the version.
func (c *versionCmd) Run(io streams) error {
	b := thisBuild()
	if c.JSON {
		return json.NewEncoder(io.out).Encode(b)
	}
	_, err := fmt.Fprintf(io.out, "sekali %s (%s, %s)\n", b.Version, b.Go, b.Platform)
	return err
}
