package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// parseProperties reads the form of Kafka's server.properties: NAME=VALUE lines (':' and blanks separate too), comments
// with # or !, lines continued by a backslash. A name given twice is an error here: one of the two was not meant.
func parseProperties(r io.Reader) (map[string]string, error) {
	props := map[string]string{}
	sc := bufio.NewScanner(r)
	line, begun := 0, 0
	var whole strings.Builder
	for sc.Scan() {
		line++
		text := strings.TrimLeft(sc.Text(), " \t\f")
		if whole.Len() == 0 {
			begun = line
			if text == "" || text[0] == '#' || text[0] == '!' {
				continue
			}
		}
		if cut, more := strings.CutSuffix(text, `\`); more && !strings.HasSuffix(cut, `\`) {
			whole.WriteString(cut)
			continue
		}
		whole.WriteString(text)
		name, value := splitProperty(whole.String())
		whole.Reset()
		if name == "" {
			return nil, fmt.Errorf("line %d: no name before the value", begun)
		}
		if _, twice := props[name]; twice {
			return nil, fmt.Errorf("line %d: %s is set twice", begun, name)
		}
		props[name] = value
	}
	if whole.Len() > 0 {
		return nil, fmt.Errorf("line %d: the last line ends with a backslash", begun)
	}
	return props, sc.Err()
}

// splitProperty cuts at the first '=', ':' or blank that no backslash guards.
func splitProperty(s string) (name, value string) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case c == '=' || c == ':':
			return b.String(), unescape(strings.TrimSpace(s[i+1:]))
		case c == ' ' || c == '\t':
			rest := strings.TrimLeft(s[i:], " \t")
			rest = strings.TrimPrefix(strings.TrimPrefix(rest, "="), ":")
			return b.String(), unescape(strings.TrimSpace(rest))
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), ""
}

func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t", `\r`, "\r", `\`, "").Replace(s)
}
