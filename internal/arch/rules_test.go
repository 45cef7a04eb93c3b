package arch

import (
	"slices"
	"strings"
)

const module = "github.com/muster-dev/muster"

// ring orders packages: a package imports only what its rule allows.
type ring int

const (
	vocabulary ring = iota // the root package
	pure                   // decides; no I/O, no clock, no goroutine
	contract               // what several implementations must do alike
	adapter                // one implementation, one third-party family
	shell                  // goroutines, connections, processes
	wiring                 // builds the program from parts
	testOnly               // imported by tests only
)

// rule is what one package is and what it may import of this module beyond the
// root package, and of third parties.
type rule struct {
	ring     ring
	internal []string // packages of this module, without "internal/"; a rule with ring wiring or testOnly may import all
	external []string // prefixes of third-party import paths
}

// rules has one entry for each package, by its path without "internal/".
var rules = map[string]rule{
	"":               {ring: vocabulary},
	"placement":      {ring: pure, internal: []string{"policy"}},
	"dag":            {ring: pure, external: []string{"github.com/expr-lang/expr"}},
	"specvalidate":   {ring: pure, internal: []string{"dag", "resultcache"}},
	"auth":           {ring: pure},
	"policy":         {ring: pure},
	"usageseries":    {ring: pure},
	"retention":      {ring: pure},
	"cid":            {ring: pure},
	"cron":           {ring: pure, external: []string{"github.com/robfig/cron/v3"}},
	"sched":          {ring: pure, internal: []string{"placement", "dag", "sched/gang", "sched/health", "sched/inflight", "sched/queue", "sched/report", "sched/retry"}},
	"sched/gang":     {ring: pure, internal: []string{"placement", "sched/retry"}},
	"sched/health":   {ring: pure},
	"sched/report":   {ring: pure, internal: []string{"sched/retry"}},
	"sched/retry":    {ring: pure},
	"sched/inflight": {ring: pure},
	"resultcache":    {ring: pure},
	"sched/queue":    {ring: pure, internal: []string{"placement"}},

	"artifacturl": {ring: contract},

	"audit":    {ring: pure},
	"auditlog": {ring: shell, internal: []string{"audit", "backoff", "wake"}},

	"store":     {ring: contract, internal: []string{"audit"}},
	"blob":      {ring: contract, internal: []string{"atomicfile", "lru"}},
	"tasklog":   {ring: contract, internal: []string{"atomicfile"}},
	"link":      {ring: contract, internal: []string{"backoff", "bootclock", "wake"}, external: []string{"github.com/go-json-experiment/json"}},
	"eventbus":  {ring: contract},
	"execwire":  {ring: contract},
	"tarfolder": {ring: contract},

	"atomicfile": {ring: contract},
	"sdnotify":   {ring: contract},
	"boltdb":     {ring: contract, external: []string{"go.etcd.io/bbolt"}},
	"backoff":    {ring: contract},
	"bootclock":  {ring: contract, external: []string{"golang.org/x/sys"}},
	"lru":        {ring: contract},
	"wake":       {ring: contract},

	"traceparent": {ring: contract},

	"overview":         {ring: pure, internal: []string{"api/wire", "sched", "store"}},
	"backup":           {ring: shell, internal: []string{"atomicfile", "store"}, external: []string{"golang.org/x/sys"}},
	"history":          {ring: shell, internal: []string{"api/wire", "sched"}},
	"api/wire":         {ring: contract, internal: []string{"audit"}},
	"api/access":       {ring: adapter, internal: []string{"api/caller", "api/keyring", "api/rest", "api/sessiontoken", "api/wire", "artifacturl", "auth", "connlimit", "handshake", "link", "oidc", "ratelimit", "store"}},
	"api/granting":     {ring: adapter, internal: []string{"store"}},
	"api/caller":       {ring: adapter, internal: []string{"audit", "auth"}},
	"api/redact":       {ring: adapter},
	"api/rest":         {ring: adapter, internal: []string{"api/caller", "api/schema", "api/wire", "audit", "auth", "backoff"}, external: []string{"github.com/danielgtaylor/huma/v2"}},
	"api/middleware":   {ring: adapter, internal: []string{"api/wire"}, external: []string{"github.com/klauspost/compress/gzhttp"}},
	"api/sessiontoken": {ring: adapter, internal: []string{"auth", "handshake", "lru"}, external: []string{"github.com/golang-jwt/jwt/v5"}},
	"api/keyring":      {ring: adapter, internal: []string{"api/sessiontoken", "auth", "lru", "ratelimit", "store"}, external: []string{"golang.org/x/time"}},
	"api/schema":       {ring: adapter, internal: []string{"api/wire"}, external: []string{"github.com/danielgtaylor/huma/v2"}},
	"api/cache":        {ring: adapter},
	"api/streaming":    {ring: adapter},
	"api/logview":      {ring: adapter, internal: []string{"tasklog"}},
	"kind":             {ring: adapter, internal: []string{"runtimes", "spec", "dag", "specvalidate"}, external: []string{"github.com/google/jsonschema-go/jsonschema"}},
	"catalog":          {ring: adapter, internal: []string{"kind", "api/wire"}},
	"runtimes":         {ring: contract},

	"lazyregexp": {ring: pure},

	"connlimit":    {ring: adapter},
	"handshake":    {ring: contract},
	"ratelimit":    {ring: adapter, internal: []string{"backoff", "lru"}, external: []string{"golang.org/x/time"}},
	"browserguard": {ring: adapter},
	"origin":       {ring: adapter},
	"certs":        {ring: adapter, internal: []string{"atomicfile", "backoff", "origin"}, external: []string{"golang.org/x/crypto/acme"}},
	"cidcheck":     {ring: adapter, internal: []string{"blob", "cid", "store"}, external: []string{"golang.org/x/sync"}},
	"ipfs":         {ring: adapter, internal: []string{"backoff", "blob", "store"}, external: []string{"golang.org/x/sync"}},
	"oidc":         {ring: adapter, internal: []string{"auth", "origin", "sealing"}, external: []string{"github.com/coreos/go-oidc/v3/oidc", "golang.org/x/oauth2"}},
	"sshsig":       {ring: adapter, external: []string{"golang.org/x/crypto/ssh", "golang.org/x/crypto/ssh/agent"}},
	"signedjob":    {ring: adapter, internal: []string{"agent/run", "dag", "sshsig"}, external: []string{"golang.org/x/crypto/ssh"}},
	"sealing":      {ring: adapter, internal: []string{"atomicfile"}, external: []string{"golang.org/x/crypto/chacha20poly1305"}},

	"agent/progress": {ring: contract},
	"agent/redact":   {ring: contract},
	"agent/run":      {ring: contract, internal: []string{"tasklog"}, external: []string{"golang.org/x/sys"}},

	"spec":              {ring: adapter, internal: []string{"dag", "specvalidate"}, external: []string{"go.yaml.in/yaml/v4"}},
	"store/sqlite":      {ring: adapter, internal: []string{"audit", "store"}, external: []string{"github.com/ncruces/go-sqlite3", "github.com/pressly/goose/v3"}},
	"link/wslink":       {ring: adapter, internal: []string{"link"}, external: []string{"github.com/coder/websocket"}},
	"link/polllink":     {ring: adapter, internal: []string{"backoff", "link"}},
	"agent/run/kinds":   {ring: adapter, internal: []string{"agent/modelpool", "agent/run", "agent/run/process", "agent/run/python", "kind"}},
	"agent/runtimes":    {ring: adapter, internal: []string{"agent/run", "agent/run/python", "atomicfile", "runtimes"}},
	"agent/modelpool":   {ring: adapter, internal: []string{"agent/run", "atomicfile", "agent/isolation", "agent/shim/proctree"}, external: []string{"golang.org/x/"}},
	"agent/run/noop":    {ring: adapter, internal: []string{"agent/run"}},
	"agent/run/process": {ring: adapter, internal: []string{"agent/liveoutput", "agent/meter", "agent/progress", "agent/redact", "agent/run", "atomicfile", "cid", "sdk/python", "tasklog"}, external: []string{"github.com/shirou/gopsutil", "golang.org/x/sync", "golang.org/x/sys", "golang.org/x/time", "github.com/bmatcuk/doublestar"}},
	"agent/run/script":  {ring: adapter, internal: []string{"agent/outbound", "agent/run", "agent/run/process", "agent/run/python"}},
	"agent/liveoutput":  {ring: adapter, internal: []string{"agent/run", "backoff"}},
	"agent/outbound":    {ring: adapter},
	"agent/run/python":  {ring: adapter, internal: []string{"agent/isolation", "agent/procfs", "agent/run", "backoff"}, external: []string{"github.com/shirou/gopsutil"}},
	"agent/procfs":      {ring: adapter},
	"agent/probe":       {ring: adapter, internal: []string{"atomicfile", "agent/docker", "agent/gpu", "agent/gpu/tool", "agent/isolation", "agent/procfs", "agent/userns"}, external: []string{"github.com/shirou/gopsutil", "golang.org/x/sync", "golang.org/x/sys"}},
	"agent/gpu":         {ring: adapter, internal: []string{"agent/gpu/tool", "agent/gpu/xid", "wake"}},
	"agent/gpu/tool":    {ring: adapter, internal: []string{"backoff"}, external: []string{"golang.org/x/"}},
	"agent/gpu/xid":     {ring: adapter, external: []string{"golang.org/x/"}},
	"agent/devices":     {ring: adapter, internal: []string{"agent/gpu", "agent/procfs", "agent/run", "atomicfile", "wake"}, external: []string{"golang.org/x/"}},
	"agent/isolation":   {ring: adapter, internal: []string{"agent/run", "agent/isolation/cgroup", "agent/isolation/landlock", "agent/isolation/netns", "agent/isolation/seccomp", "agent/isolation/view"}, external: []string{"github.com/shirou/gopsutil", "golang.org/x/"}},

	"agent/isolation/cgroup":   {ring: adapter, internal: []string{"atomicfile", "agent/procfs", "agent/run"}, external: []string{"golang.org/x/"}},
	"agent/isolation/landlock": {ring: adapter, internal: []string{"agent/run"}, external: []string{"golang.org/x/"}},
	"agent/isolation/view":     {ring: adapter, internal: []string{"agent/run", "agent/isolation/netns"}, external: []string{"golang.org/x/"}},
	"agent/isolation/netns":    {ring: adapter, internal: []string{"agent/isolation/seccomp", "agent/run", "agent/shim/fault"}, external: []string{"golang.org/x/"}},
	"agent/isolation/seccomp":  {ring: adapter, external: []string{"golang.org/x/"}},

	"agent/taskexec":          {ring: adapter, internal: []string{"agent/run", "execwire", "link", "tarfolder"}},
	"agent/pty":               {ring: adapter, external: []string{"golang.org/x/"}},
	"agent/shim":              {ring: adapter, internal: []string{"agent/isolation", "agent/isolation/netns", "agent/pty", "agent/progress", "agent/redact", "agent/run", "agent/shim/containerrun", "agent/shim/egress", "agent/shim/fault", "agent/shim/output", "agent/shim/proctree", "agent/shim/wire", "backoff", "bootclock", "tasklog", "wake"}, external: []string{"golang.org/x/"}},
	"agent/shim/fault":        {ring: adapter},
	"agent/shim/containerrun": {ring: adapter, internal: []string{"agent/docker", "agent/run", "agent/shim/fault", "agent/shim/proctree", "wake"}, external: []string{"golang.org/x/"}},
	"agent/shim/egress":       {ring: adapter, internal: []string{"agent/run"}, external: []string{"golang.org/x/"}},
	"agent/docker":            {ring: adapter, internal: []string{"backoff"}, external: []string{"github.com/moby/moby/", "github.com/containerd/errdefs", "github.com/opencontainers/"}},
	"agent/userns":            {ring: adapter, internal: []string{"agent/docker", "agent/isolation/netns"}, external: []string{"golang.org/x/sys"}},
	"agent/container":         {ring: adapter, internal: []string{"agent/docker", "agent/gpu", "agent/gpu/tool", "agent/run", "agent/shim/egress", "agent/userns", "atomicfile", "backoff", "policy", "wake"}, external: []string{"golang.org/x/"}},
	"agent/shim/proctree":     {ring: adapter, internal: []string{"agent/procfs", "agent/run"}, external: []string{"golang.org/x/"}},
	"agent/shim/output":       {ring: adapter, internal: []string{"agent/progress", "agent/redact", "agent/run", "agent/shim/fault", "tasklog"}, external: []string{"golang.org/x/"}},
	"agent/shim/wire":         {ring: adapter, internal: []string{"agent/run", "agent/shim/fault", "tasklog", "wake"}, external: []string{"golang.org/x/"}},
	"agent/meter":             {ring: adapter, internal: []string{"agent/gpu", "agent/procfs", "agent/run", "usageseries", "wake"}, external: []string{"golang.org/x/", "github.com/shirou/gopsutil"}},
	"agent/hostpolicy":        {ring: adapter, internal: []string{"agent/run", "agent/gpu", "agent/probe"}, external: []string{"golang.org/x/", "github.com/shirou/gopsutil"}},
	"agent/checkpoint":        {ring: adapter, internal: []string{"agent/run", "agent/shim/proctree", "atomicfile", "backoff"}, external: []string{"golang.org/x/"}},
	"agent/transfer":          {ring: adapter, internal: []string{"agent/run", "auth", "backoff", "link", "origin"}, external: []string{"golang.org/x/"}},

	"engine":    {ring: shell, internal: []string{"backoff", "dag", "eventbus", "link", "lru", "resultcache", "sched", "store", "tasklog", "traceparent"}, external: []string{"golang.org/x/time"}},
	"agent":     {ring: shell, internal: []string{"agent/progress", "agent/run", "atomicfile", "auth", "backoff", "bootclock", "boltdb", "handshake", "link", "policy", "tasklog", "wake"}, external: []string{"go.etcd.io/bbolt", "golang.org/x/"}},
	"api":       {ring: shell, internal: []string{"api/access", "api/cache", "api/caller", "api/granting", "api/keyring", "api/logview", "api/middleware", "api/redact", "api/rest", "api/schema", "api/sessiontoken", "api/streaming", "api/wire", "artifacturl", "audit", "auth", "blob", "browserguard", "cid", "connlimit", "dag", "docs", "eventbus", "execrelay", "history", "link", "lru", "oidc", "overview", "ratelimit", "resultcache", "sched", "schedules", "secrets", "signedjob", "specvalidate", "store", "tasklog", "traceparent", "usageseries"}, external: []string{"github.com/danielgtaylor/huma/v2", "golang.org/x/sync"}},
	"obs":       {ring: shell, internal: []string{"connlimit", "link", "ratelimit", "sched", "traceparent"}, external: []string{"github.com/prometheus/client_golang", "go.opentelemetry.io/"}},
	"sweeper":   {ring: shell, internal: []string{"api/wire", "audit", "backoff", "blob", "retention", "store", "wake"}},
	"schedules": {ring: shell, internal: []string{"audit", "auth", "backoff", "cron", "store", "wake"}},
	"secrets":   {ring: shell, internal: []string{"backoff", "lazyregexp", "sealing", "store"}},
	"webhook":   {ring: shell, internal: []string{"agent/outbound", "backoff", "eventbus", "sealing", "store", "traceparent", "wake"}},
	"execrelay": {ring: shell, internal: []string{"auth", "execwire", "link", "link/wslink"}},
	"client":    {ring: shell, internal: []string{"api/wire", "audit", "auth", "backoff", "execwire", "link/wslink", "origin"}, external: []string{"golang.org/x/"}},

	"dialect":         {ring: shell, internal: []string{"atomicfile", "auth", "backoff", "browserguard", "client", "connlimit", "lru", "ratelimit"}, external: []string{"go.etcd.io/bbolt"}},
	"dialect/lenient": {ring: adapter},
	"dialect/bridge":  {ring: shell, internal: []string{"dialect/lenient", "atomicfile", "backoff", "boltdb", "wake", "client", "origin"}, external: []string{"go.etcd.io/bbolt", "golang.org/x/"}},
	"dialect/fleet":   {ring: shell, internal: []string{"agent", "agent/progress", "agent/run", "agent/transfer", "backoff", "bootclock", "boltdb", "dialect", "link", "link/wslink", "tasklog", "wake"}, external: []string{"go.etcd.io/bbolt", "golang.org/x/"}},

	"dialect/qubix": {ring: shell, internal: []string{"dialect/lenient", "atomicfile", "backoff", "client", "dialect", "dialect/bridge", "dialect/fleet", "kind", "lru"}},

	"dialect/trainforge":         {ring: shell, internal: []string{"agent/progress", "agent/run", "atomicfile", "backoff", "client", "dialect", "dialect/bridge", "dialect/fleet", "dialect/lenient", "dialect/trainforge/archive", "dialect/trainforge/project", "lru", "wake"}, external: []string{"golang.org/x/sync"}},
	"dialect/trainforge/archive": {ring: adapter, internal: []string{"dialect/lenient"}},
	"dialect/trainforge/project": {ring: adapter, internal: []string{"agent/run", "dialect/trainforge/archive"}},

	"dialect/mloc":            {ring: adapter, internal: []string{"atomicfile", "dag", "spec"}, external: []string{"github.com/redis/go-redis/v9"}},
	"dialect/mloc/mlocbridge": {ring: shell, internal: []string{"agent/outbound", "atomicfile", "origin", "dialect/lenient", "backoff", "wake", "client", "dialect/bridge", "dialect/mloc"}, external: []string{"github.com/redis/go-redis/v9", "golang.org/x/sync"}},
	"dialect/mloc/mlochost":   {ring: shell, internal: []string{"lru", "boltdb", "dialect/lenient", "atomicfile", "auth", "backoff", "wake", "client", "dialect", "dialect/fleet", "dialect/mloc"}, external: []string{"github.com/alicebob/miniredis/v2", "github.com/redis/go-redis/v9", "go.etcd.io/bbolt", "golang.org/x/"}},

	"dialect/dtf": {ring: shell, internal: []string{"dialect/lenient", "atomicfile", "auth", "backoff", "origin", "wake", "dialect", "dialect/bridge", "dialect/fleet", "client", "connlimit", "kind", "link"}, external: []string{"github.com/coder/websocket", "github.com/golang-jwt/jwt/v5", "github.com/ncruces/go-sqlite3", "golang.org/x/sync"}},

	"serverd":      {ring: wiring},
	"workerd":      {ring: wiring},
	"doctor":       {ring: wiring},
	"cli":          {ring: wiring},
	"cli/doctor":   {ring: wiring},
	"cli/fleet":    {ring: wiring},
	"cli/app":      {ring: wiring},
	"cli/daemon":   {ring: wiring},
	"cli/contexts": {ring: wiring},
	"cli/install":  {ring: wiring},
	"cli/remote":   {ring: wiring},
	"cli/follow":   {ring: wiring},
	"cli/execute":  {ring: wiring},
	"cli/live":     {ring: wiring},
	"cli/machine":  {ring: wiring},
	"cli/top":      {ring: wiring},
	"cli/watch":    {ring: wiring},
	"cli/usage":    {ring: wiring},
	"cli/runtime":  {ring: wiring},
	"cli/kinds":    {ring: wiring},
	"cli/bench":    {ring: wiring},

	"cli/artifacts": {ring: wiring},
	"cli/retention": {ring: wiring},
	"cli/bridge":    {ring: wiring},
	"cli/backup":    {ring: wiring},
	"cli/audit":     {ring: wiring},
	"builtin":       {ring: wiring},
	"cli/term":      {ring: adapter, external: []string{"github.com/mattn/go-runewidth", "golang.org/x/term"}},
	"cmd/muster":    {ring: wiring},

	"gen":           {ring: wiring},
	"gen/jobschema": {ring: wiring},
	"gen/ociimage":  {ring: wiring},
	"gen/seccomp":   {ring: wiring},
	"docs":          {ring: contract},
	"deploy":        {ring: contract},

	"api/apitest":              {ring: testOnly},
	"oidc/oidctest":            {ring: testOnly},
	"arch":                     {ring: testOnly},
	"dialect/dialecttest":      {ring: testOnly},
	"dialect/mloc/mloctest":    {ring: testOnly, external: []string{"github.com/redis/go-redis/v9"}},
	"mustertest":               {ring: testOnly},
	"testkit":                  {ring: testOnly},
	"mustertest/containertest": {ring: testOnly},
	"mustertest/acmetest":      {ring: testOnly},
	"mustertest/hostile":       {ring: testOnly},
	"mustertest/simworker":     {ring: testOnly},
	"mustertest/testworker":    {ring: testOnly},
	"sched/simtest":            {ring: testOnly},
	"store/storetest":          {ring: testOnly},
	"store/faulty":             {ring: testOnly},
	"blob/blobtest":            {ring: testOnly},
	"link/linktest":            {ring: testOnly},
	"agent/run/runtest":        {ring: testOnly},
	"agent/gpu/gputest":        {ring: testOnly},
	"test/script":              {ring: testOnly},
	"test/attack":              {ring: testOnly},
	"test/mutants":             {ring: testOnly},
	"test/chaos":               {ring: testOnly},
	"test/e2e":                 {ring: testOnly},
	"test/load":                {ring: testOnly},
	"test/ml":                  {ring: testOnly},
	"test/vm":                  {ring: testOnly},
	"test/packages":            {ring: testOnly},
	"testreport":               {ring: testOnly},
	"sdk/python":               {ring: contract},

	"web":       {ring: contract},
	"dashboard": {ring: adapter},
}

// notInServer lists packages, or prefixes of them ending in "/", on which the server must not depend, not even indirectly: the
// programs of built-in kinds, and commands.
var notInServer = []string{"builtin", "cli", "cli/"}

// serverdOnly lists optional parts of the server, which package serverd uses behind interfaces and no other package imports.
var serverdOnly = []string{"cidcheck", "ipfs"}

// everywhere lists packages that each package may import.
var everywhere = []string{"lazyregexp"}

// impure lists standard packages, or prefixes of them ending in "/", that pure
// packages and the vocabulary must not import.
var impure = []string{"os", "os/", "net", "net/", "context", "log", "log/", "sync", "math/rand", "math/rand/", "crypto/rand", "syscall", "testing"}

// allowed reports whether a package with rule r may import path.
func (r rule) allowed(path string) bool {
	switch {
	case path == module:
		return true
	case strings.HasPrefix(path, module+"/"):
		if r.ring == wiring || r.ring == testOnly {
			return true
		}
		rest := strings.TrimPrefix(strings.TrimPrefix(path, module+"/"), "internal/")
		return slices.Contains(r.internal, rest) || slices.Contains(everywhere, rest)
	case !strings.Contains(firstPart(path), "."): // the standard library
		if r.ring > pure {
			return true
		}
		return path == "net/netip" || !listed(impure, path) // addresses as values
	default:
		if r.ring == wiring || r.ring == testOnly {
			return true
		}
		for _, p := range r.external {
			if strings.HasPrefix(path, p) {
				return true
			}
		}
		return false
	}
}

// listed reports whether list has path, or a prefix of it that ends in "/".
func listed(list []string, path string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return path == p || strings.HasSuffix(p, "/") && strings.HasPrefix(path, p) })
}

func firstPart(path string) string {
	first, _, _ := strings.Cut(path, "/")
	return first
}
