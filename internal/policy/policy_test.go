package policy

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/distribution/reference"

	"github.com/muster-dev/muster"
)

func TestRefuses(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0a", 32)
	inContainer := func(c muster.Container) *muster.TaskSpec {
		return &muster.TaskSpec{Kind: muster.KindContainer, Image: "a", Isolation: muster.IsolationContainer, Container: &c}
	}
	image := func(ref string) *muster.TaskSpec {
		return &muster.TaskSpec{Image: ref, Isolation: muster.IsolationContainer}
	}
	mount := func(source string, ro bool) *muster.TaskSpec {
		return inContainer(muster.Container{Mounts: []muster.Mount{{Source: source, Target: "/x", ReadOnly: ro}}})
	}
	images := func(p ...string) *muster.Allow { return &muster.Allow{Images: p} }
	mounts := func(p ...string) *muster.Allow { return &muster.Allow{Mounts: p} }
	env := func(names ...string) *muster.TaskSpec {
		spec := &muster.TaskSpec{Kind: muster.KindProcess, Env: map[string]string{}}
		for _, n := range names {
			spec.Env[n] = "x"
		}
		return spec
	}
	host := &muster.TaskSpec{Image: "a", Isolation: muster.IsolationContainer, Network: muster.NetworkHost}
	for name, c := range map[string]struct {
		allow   *muster.Allow
		spec    *muster.TaskSpec
		wantErr string // "" for nothing
	}{
		"a new worker takes any image":            {nil, image("ghcr.io/a/b"), ""},
		"any user":                                {nil, inContainer(muster.Container{User: "root"}), ""},
		"any variable":                            {nil, env("A"), ""},
		"but no mount":                            {nil, mount("/data", true), "read /data"},
		"and not its network":                     {nil, host, "own network"},
		"which processes have":                    {nil, &muster.TaskSpec{Kind: muster.KindProcess, Network: muster.NetworkHost}, ""},
		"an empty list allows nothing":            {&muster.Allow{Images: []string{}}, image("a"), "the image a"},
		"no variables":                            {&muster.Allow{Env: []string{}}, env("A"), "the variable A"},
		"none is needed":                          {&muster.Allow{Env: []string{}}, env(), ""},
		"one of two variables":                    {&muster.Allow{Env: []string{"HF_*"}}, env("HF_TOKEN", "LD_PRELOAD"), "LD_PRELOAD"},
		"both":                                    {&muster.Allow{Env: []string{"HF_*", "*_PRELOAD"}}, env("HF_TOKEN", "LD_PRELOAD"), ""},
		"a name that hides another one":           {&muster.Allow{Env: []string{"*_TOKEN"}}, env("LD_PRELOAD=/x.so:_TOKEN"), "LD_PRELOAD"},
		"nor where all are allowed":               {&muster.Allow{Env: []string{"*"}}, env("A\x00B"), "A"},
		"no secrets":                              {&muster.Allow{Secrets: []string{}}, withSecret(muster.Secret{Name: "A"}), "the secret A"},
		"one of two secrets":                      {&muster.Allow{Secrets: []string{"HF_*"}}, withSecret(muster.Secret{Name: "HF_TOKEN"}, muster.Secret{Name: "KEY", File: "k"}), "the secret KEY"},
		"both secrets":                            {&muster.Allow{Secrets: []string{"HF_*", "KEY"}}, withSecret(muster.Secret{Name: "HF_TOKEN"}, muster.Secret{Name: "KEY", File: "k"}), ""},
		"a secret that sets a variable":           {&muster.Allow{Env: []string{"HF_*"}}, withSecret(muster.Secret{Name: "HF_TOKEN", Env: "LD_PRELOAD"}), "the variable LD_PRELOAD"},
		"a secret that is a file":                 {&muster.Allow{Env: []string{}}, withSecret(muster.Secret{Name: "KEY", File: "k"}), ""},
		"variables of containers":                 {&muster.Allow{Env: []string{"A"}}, &muster.TaskSpec{Image: "a", Env: map[string]string{"AB": ""}}, "AB"},
		"a bare name is of all tags":              {images("python"), image("python:3.12"), ""},
		"and digests":                             {images("python"), image("python" + digest), ""},
		"and of the long name":                    {images("python"), image("docker.io/library/python:3.12"), ""},
		"and of no other":                         {images("python"), image("python2:3.12"), "python2"},
		"nor of a path below":                     {images("python"), image("acme/python"), "acme/python"},
		"a long pattern":                          {images("docker.io/library/python"), image("python"), ""},
		"all of the Hub":                          {images("docker.io/*"), image("acme/python:1"), ""},
		"not beyond the Hub":                      {images("docker.io/*"), image("ghcr.io/acme/python:1"), "ghcr.io"},
		"a registry's folder":                     {images("ghcr.io/acme/*"), image("ghcr.io/acme/a/b:1"), ""},
		"not a name that begins alike":            {images("ghcr.io/acme/*"), image("ghcr.io/acme2/b"), "acme2"},
		"not the Hub's folder of that name":       {images("ghcr.io/acme/*"), image("docker.io/ghcr.io/acme/b"), "docker.io/ghcr.io"},
		"a tag":                                   {images("python:3.*"), image("python:3.12"), ""},
		"not another tag":                         {images("python:3.*"), image("python:2.7"), "2.7"},
		"latest is meant":                         {images("python:latest"), image("python"), ""},
		"a tag tells nothing beside a digest":     {images("python:3.*"), image("python:3.12" + digest), "3.12@"},
		"only pinned ones":                        {images("*@sha256:*"), image("ghcr.io/a/b:1" + digest), ""},
		"which this is not":                       {images("*@sha256:*"), image("ghcr.io/a/b:1"), "b:1"},
		"a port is no tag":                        {images("localhost:5000/*"), image("localhost:5000/a:1"), ""},
		"all":                                     {images("*"), image("ghcr.io/a/b:1"), ""},
		"an image that is not resolved yet":       {images("python"), image("${matrix.image}"), ""},
		"not an image":                            {images("*"), image("A B"), "A B"},
		"no list, any image":                      {&muster.Allow{HostNetwork: true}, host, ""},
		"an image without isolation":              {images("b"), &muster.TaskSpec{Image: "a"}, "image a"},
		"a kind that always is a container":       {images("b"), &muster.TaskSpec{Kind: muster.KindContainer, Image: "a", Isolation: muster.IsolationAuto}, "image a"},
		"an unknown isolation     ":               {images("b"), &muster.TaskSpec{Image: "a", Isolation: "vm"}, "image a"},
		"a timeout below the maximum":             {&muster.Allow{MaxTaskTimeout: muster.Duration(time.Hour)}, &muster.TaskSpec{Timeout: muster.Duration(time.Hour)}, ""},
		"a timeout above the maximum":             {&muster.Allow{MaxTaskTimeout: muster.Duration(time.Hour)}, &muster.TaskSpec{Timeout: muster.Duration(time.Hour) + 1}, "timeouts over 1h0m0s, and the task's is"},
		"no timeout":                              {&muster.Allow{MaxTaskTimeout: muster.Duration(time.Hour)}, &muster.TaskSpec{}, ""},
		"a trusted key":                           {&muster.Allow{SignedBy: []string{"SHA256:a", "SHA256:b"}}, &muster.TaskSpec{SignedBy: "SHA256:b"}, ""},
		"another key":                             {&muster.Allow{SignedBy: []string{"SHA256:a"}}, &muster.TaskSpec{SignedBy: "SHA256:b"}, "signed by SHA256:b"},
		"no signature":                            {&muster.Allow{SignedBy: []string{"SHA256:a"}}, &muster.TaskSpec{}, "without a signature by a trusted key"},
		"a signature that is not required":        {&muster.Allow{}, &muster.TaskSpec{SignedBy: "SHA256:b"}, ""},
		"either way may be a process":             {images("b"), &muster.TaskSpec{Image: "a", Isolation: muster.IsolationAuto, Network: muster.NetworkHost}, ""},
		"a user":                                  {&muster.Allow{Users: []string{"1000:1000"}}, inContainer(muster.Container{User: "1000:1000"}), ""},
		"a user with another group":               {&muster.Allow{Users: []string{"1000"}}, inContainer(muster.Container{User: "1000:0"}), "user 1000:0"},
		"the image's own user":                    {&muster.Allow{Users: []string{"1000"}}, image("a"), "set container.user"},
		"which may be allowed":                    {&muster.Allow{Users: []string{"1000", ""}}, image("a"), ""},
		"a folder":                                {mounts("/data"), mount("/data", false), ""},
		"what is in it":                           {mounts("/x", "/data"), mount("/data/a/b", false), ""},
		"not what begins alike":                   {mounts("/data"), mount("/database", true), "read /database"},
		"not by way of it":                        {mounts("/data"), mount("/data/../etc", true), "read /data/../etc"},
		"for reading only":                        {mounts("/data:ro"), mount("/data", true), ""},
		"no more than that":                       {mounts("/data:ro"), mount("/data", false), "read and change /data"},
		"everything":                              {mounts("/:ro"), mount("/etc", true), ""},
		"a relative source is nowhere":            {mounts("/"), mount("etc", true), "read etc"},
		"a container that is a process elsewhere": {mounts(), &muster.TaskSpec{Isolation: muster.IsolationAuto, Image: "a", Container: mount("/a", true).Container}, ""},
	} {
		got := Check(c.allow, c.spec)
		if c.wantErr == "" && got != "" || c.wantErr != "" && (!strings.Contains(got, c.wantErr) || !strings.HasPrefix(got, "its owner does not allow ")) {
			t.Errorf("%s: %q, want …%s…", name, got, c.wantErr)
		}
	}
}

func TestAutoIsolationChecksTheContainer(t *testing.T) {
	spec := &muster.TaskSpec{Image: "a", Isolation: muster.IsolationAuto}
	if got := CheckContainer(&muster.Allow{Images: []string{"b"}}, spec); !strings.Contains(got, "the image a") {
		t.Errorf("a container of an image that is not allowed: %q", got)
	}
}

// A pattern means what the same regular expression does, and never crashes.
func FuzzMatches(f *testing.F) {
	f.Add("a*b*c", "aXbYc")
	f.Add("*", "")
	f.Add("ab*ba", "aba")
	f.Add("**", "x\n")
	f.Fuzz(func(t *testing.T, pattern, s string) {
		parts := strings.Split(pattern, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		re, err := regexp.Compile("^(?s:" + strings.Join(parts, ".*") + ")$")
		if err != nil {
			t.Skip("not UTF-8")
		}
		if got, want := matchPattern(pattern, s), re.MatchString(s); got != want {
			t.Errorf("matches(%q, %q) is %v", pattern, s, got)
		}
	})
}

// An image's whole name is the one that engines see in it.
func FuzzParseImage(f *testing.F) {
	for _, ref := range []string{
		"python", "python:3.12", "acme/a", "ghcr.io/acme/a:1", "localhost/a", "localhost:5000/a__b", "index.docker.io/a", "docker.io/a/b", "docker.io/ghcr.io/a/b",
		"a@sha256:" + strings.Repeat("0a", 32), "a:1@sha256:" + strings.Repeat("0a", 32), "[fd00::1]:80/a", "Host/a", "a..b", "a/-b", "A", "sha256:" + strings.Repeat("0a", 32), strings.Repeat("0a", 32), "1.2/a",
		"a.-b.c/d", "xn--a.b/c", strings.Repeat("a", 256),
	} {
		f.Add(ref)
	}
	f.Fuzz(func(t *testing.T, ref string) {
		name, version, ok := muster.ParseImage(ref)
		if !ok {
			return
		}
		want, err := reference.ParseDockerRef(ref)
		if err != nil {
			t.Fatalf("%q is accepted as an image: %v", ref, err)
		}
		if name != want.Name() {
			t.Errorf("%q is of %s, want %s", ref, name, want.Name())
		}
		if got := name + version; got != want.String() {
			t.Errorf("%q is %s, want %s", ref, got, want)
		}
	})
}

func withSecret(list ...muster.Secret) *muster.TaskSpec {
	return &muster.TaskSpec{Kind: muster.KindProcess, Secrets: list}
}
