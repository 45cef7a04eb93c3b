package engine

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"net/url"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/lazyregexp"
	"github.com/muster-dev/muster/internal/sched"
)

// URLSigner makes URLs with which an artifact can be read without a key.
type URLSigner interface {
	// ForTask returns the URL of an artifact on the server with a base URL, for a task with a timeout that starts now.
	ForTask(base string, of muster.TaskID, name, sha256 string, timeout muster.Duration) string
}

// bindElement returns the spec of an assigned task, with URLs of artifacts that are valid from now.
func (s *session) bindElement(w *sched.Assign) *muster.TaskSpec {
	used := false
	spec := dag.Bind(w.Spec, w.Element, func(num int, name, sha256 string) string {
		used = true
		return s.engine.cfg.URLs.ForTask(s.url, muster.TaskID{Job: w.Attempt.Task.Job, Num: num}, name, sha256, w.Spec.Timeout)
	})
	if used && spec.Network == muster.NetworkAllowlist {
		spec.AllowHosts = withServer(spec.AllowHosts, s.url, spec.Image != "")
	}
	return spec
}

// withServer returns an allowlist with the server, whose URLs the task gets. A container cannot reach one on the loopback interface.
func withServer(hosts []string, server string, inContainer bool) []string {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return hosts
	}
	if ip, err := netip.ParseAddr(u.Hostname()); inContainer && err == nil && ip.IsLoopback() {
		return hosts
	}
	if slices.Contains(hosts, u.Host) {
		return hosts
	}
	return append(slices.Clone(hosts), u.Host) // ports 80 and 443 need not be named
}

// urlPlaceholder is the URL of an artifact of the task in its result, as JSON.
var urlPlaceholder = lazyregexp.New(`"artifact://\{([^"\\{}]+)\}"`)

// fillURLs replaces each text artifact://{NAME} in the result of a task by the URL of its artifact NAME, for which a key is needed. An attempt
// without that artifact has failed.
func (s *session) fillURLs(r *muster.Report) {
	if !bytes.Contains(r.Result, []byte(`"artifact://{`)) {
		return
	}
	missing := ""
	filled := urlPlaceholder.Get().ReplaceAllFunc(r.Result, func(text []byte) []byte {
		name := string(urlPlaceholder.Get().FindSubmatch(text)[1])
		if !slices.ContainsFunc(r.Artifacts, func(a muster.Artifact) bool { return a.Name == name }) {
			missing = name
			return text
		}
		quoted, err := json.Marshal(s.url + muster.ArtifactPath(r.Attempt.Task, name))
		if err != nil { // not for a string
			return text
		}
		return quoted
	})
	fail := func(message string) {
		r.Outcome, r.Reason, r.Message, r.Result = muster.AttemptFailed, muster.ResultInvalid, message, nil
	}
	switch {
	case missing != "" && r.Outcome != muster.AttemptSucceeded:
	case missing != "":
		fail("result.json refers to artifact://{" + muster.Truncate(missing) + "}, but there is no such artifact: write that file to $MUSTER_OUT")
	case len(filled) > muster.MaxResultSize:
		fail("result.json is larger than " + muster.Size(muster.MaxResultSize).String() + " after the URLs of its artifacts are filled in")
	default:
		r.Result = filled
	}
}
