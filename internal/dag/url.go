package dag

import (
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// URLFunc returns the URL of an artifact of a task of the same job, by the task's number. With a nil one, references to URLs stay.
type URLFunc = func(num int, name, sha256 string) string

// artifactURL is the URL of an artifact. It is valid for a time only, so Resolve leaves a reference for Bind.
type artifactURL struct {
	body  string // of the reference: artifact_url, the task's number, the hash, and the escaped name
	plain string // where Bind inserts no URLs: the path on the server, or what the result has
}

var (
	artifactURLBody = lazyregexp.New(`^artifact_url (\d{1,9}) ([0-9a-f]+) ([A-Za-z0-9%._~/-]+)$`)
	// ownURLs matches the URL of an artifact on some server.
	ownURLs = lazyregexp.New(`^https?://[^?#]*/api/v1/tasks/\d+\.\d+(/artifacts/[^?#]+)$`)
)

func newArtifactURL(t *muster.Task, a *muster.Artifact) artifactURL {
	path := muster.ArtifactPath(t.ID, a.Name)
	_, name, _ := strings.Cut(path, "/artifacts/")
	return artifactURL{body: "artifact_url " + strconv.Itoa(t.ID.Num) + " " + a.SHA256 + " " + name, plain: path}
}

// isArtifactURL reports whether a body is that of an artifactURL.
func isArtifactURL(body string) bool {
	return strings.HasPrefix(body, "artifact_url ") && artifactURLBody.Get().MatchString(body)
}

// urlOf returns the URL for the body of an artifactURL.
func urlOf(body string, url URLFunc) string {
	if url == nil {
		return "${" + body + "}"
	}
	m := artifactURLBody.Get().FindStringSubmatch(body)
	num, _ := strconv.Atoi(m[1]) // of digits
	return url(num, unescapePath(m[3]), m[2])
}

// unescapePath is the inverse of what muster.ArtifactPath does to a name.
func unescapePath(text string) string {
	var name []byte
	for i := 0; i < len(text); i++ {
		if c, err := strconv.ParseUint(text[i+1:min(i+3, len(text))], 16, 8); text[i] == '%' && err == nil {
			name = append(name, byte(c))
			i += 2
		} else {
			name = append(name, text[i])
		}
	}
	return string(name)
}

// ownURL returns the artifactURL for a text of a task's result that is the URL of one of its artifacts.
func ownURL(t *muster.Task, text string) (u artifactURL, ok bool) {
	m := ownURLs.Get().FindStringSubmatch(text)
	if m == nil {
		return u, false
	}
	i := slices.IndexFunc(t.Artifacts, func(a muster.Artifact) bool { return strings.HasSuffix(muster.ArtifactPath(t.ID, a.Name), m[1]) })
	if i < 0 {
		return u, false
	}
	u = newArtifactURL(t, &t.Artifacts[i])
	u.plain = text
	return u, true
}

// takesURLs reports whether Bind may insert URLs into a field. The others are read before an element is bound, or name no file.
func takesURLs(path string) bool {
	field, _, _ := strings.Cut(path, ".")
	field, _, _ = strings.Cut(field, "[")
	return slices.Contains([]string{"run", "script", "env", "input"}, field)
}

// withoutURLs replaces each artifactURL in what resolveRef returned.
func withoutURLs(v any) any {
	switch v := v.(type) {
	case artifactURL:
		return v.plain
	case []any:
		for i := range v {
			v[i] = withoutURLs(v[i])
		}
	}
	return v
}

// valueParts returns the pieces of the text of what resolveRef returned.
func valueParts(v any) []part {
	switch v := v.(type) {
	case artifactURL:
		return []part{{text: v.body, ref: true}}
	case []any:
		list := []part{{text: "["}}
		for i, item := range v {
			if i > 0 {
				list = append(list, part{text: ","})
			}
			if u, ok := item.(artifactURL); ok { // no character of it is escaped in JSON
				list = append(list, part{text: `"`}, part{text: u.body, ref: true}, part{text: `"`})
			} else {
				list = append(list, part{text: string(encode(item))})
			}
		}
		return append(list, part{text: "]"})
	}
	return []part{{text: stringify(v)}}
}
