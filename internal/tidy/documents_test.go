package tidy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// home is the top of the repository as seen from this package.
const home = "../.."

func lines(t *testing.T, name string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(home, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(b), "\n")
}

// TestReadmePrograms: the programs of the README stand in the files it names, line by line and in that order, but for
// indentation and for lines that begin with dots.
func TestReadmePrograms(t *testing.T) {
	heading := regexp.MustCompile(`^[A-Z].*\]\((compat/loop/[^)]+)\)\):$`)
	programs, at, name := 0, []string(nil), ""
	for _, l := range lines(t, "README.md") {
		code := strings.TrimSpace(l)
		switch m := heading.FindStringSubmatch(l); {
		case m != nil:
			name, at = m[1], lines(t, m[1])
			programs++
		case name == "" || code == "" || strings.HasPrefix(code, "..."):
		case !strings.HasPrefix(l, "    "):
			name = ""
		default:
			for len(at) > 0 && strings.TrimSpace(at[0]) != code {
				at = at[1:]
			}
			if len(at) == 0 {
				t.Fatalf("README.md: %q does not follow in %s", code, name)
			}
			at = at[1:]
		}
	}
	if programs != 3 {
		t.Errorf("the README shows %d programs, want Java, Go and JavaScript", programs)
	}
}

// TestLinks: what the documents link to is there, headings included.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	names := []string{"README.md", "CHANGELOG.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md", "compat/*.md"} {
		found, err := filepath.Glob(filepath.Join(home, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			names = append(names, strings.TrimPrefix(filepath.ToSlash(f), home+"/"))
		}
	}
	checked := 0
	for _, name := range names {
		for _, m := range link.FindAllStringSubmatch(strings.Join(lines(t, name), "\n"), -1) {
			target, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			checked++
			file := name
			if target != "" {
				file = filepath.Join(filepath.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join(home, file)); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			} else if heading != "" && !hasHeading(lines(t, file), heading) {
				t.Errorf("%s links to %s: no such heading", name, m[1])
			}
		}
	}
	if checked < 20 {
		t.Errorf("%d links checked", checked)
	}
}

// hasHeading looks for the heading that a link names in the way of the usual renderers.
func hasHeading(text []string, anchor string) bool {
	drop := regexp.MustCompile("[^a-z0-9 _-]")
	for _, l := range text {
		if !strings.HasPrefix(l, "#") {
			continue
		}
		words := drop.ReplaceAllString(strings.ToLower(strings.TrimSpace(strings.TrimLeft(l, "#"))), "")
		if strings.ReplaceAll(words, " ", "-") == anchor {
			return true
		}
	}
	return false
}
