// Package script tests the output, in all formats, and the exit status of the program. Each file in testdata is a
// script with the expected output; go test ./test/script -update updates it.
package script

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/cli"
	"github.com/muster-dev/muster/internal/cli/app"
)

var update = flag.Bool("update", false, "update the expected output")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"muster": func() { os.Exit(cli.Main(app.MaskArgs())) },
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Values[processKey{}] = new(process)
			e.Setenv("MUSTER_CONFIG", filepath.Join(e.WorkDir, "context.json"))
			e.Setenv("XDG_DATA_HOME", filepath.Join(e.WorkDir, "share"))
			e.Setenv("GORACE", "atexit_sleep_ms=20") // with the race detector, each program sleeps for a second before it exits
			e.Setenv("TZ", "Asia/Tokyo")             // people see its times
			e.Setenv("MUSTER_ADMIN_TOKEN", "mst_admin_"+strings.Repeat("a", 32))
			e.Setenv("MUSTER_JOIN_TOKEN", "mst_join_"+strings.Repeat("j", 32))
			return nil
		},
		Cmds: commands(),
	})
}

func commands() map[string]func(*testscript.TestScript, bool, []string) {
	all := terminalCommands(map[*testscript.TestScript]*terminal{}, new(sync.Mutex))
	if all == nil {
		all = map[string]func(*testscript.TestScript, bool, []string){}
	}
	maps.Copy(all, map[string]func(*testscript.TestScript, bool, []string){
		"up":    func(ts *testscript.TestScript, _ bool, args []string) { startCommand(ts, "up", args) },
		"serve": func(ts *testscript.TestScript, _ bool, args []string) { startCommand(ts, "server", args) },
		"crash": crashCommand,
		"exits": exitsCommand,
		"mask":  maskCommand,
		"until": untilCommand,
	})
	return all
}

// commandTimeout limits each command of a script.
const commandTimeout = time.Minute

// process is the last background process of a script.
type process struct {
	process *os.Process
	ended   chan struct{} // closed after Wait
}

// processKey is the key of a script's *process.
type processKey struct{}

// startCommand runs muster up or muster server in the background and waits until it is
// ready. It is stopped when the script ends.
func startCommand(ts *testscript.TestScript, command string, args []string) {
	args = slices.Concat([]string{command, "--listen", "127.0.0.1:0", "--log-level", "warn", "-o", "json"}, args)
	if command == "up" {
		args = append(args, "--name", "rig", "--shutdown-grace", "1s")
	}
	bin, err := exec.LookPath("muster")
	ts.Check(err)
	cmd := exec.Command(bin, args...)
	cmd.Dir = ts.Getenv("WORK")
	cmd.Env = environment(ts)
	log, err := os.Create(filepath.Join(ts.Getenv("WORK"), command+".log"))
	ts.Check(err)
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	read, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		<-read // Wait closes the pipe
		_ = cmd.Wait()
	}()
	ts.Defer(func() {
		kill := time.AfterFunc(commandTimeout, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		_ = cmd.Process.Signal(os.Interrupt)
		<-ended
		if !cmd.ProcessState.Success() {
			ts.Logf("muster %s: %v", command, cmd.ProcessState)
		}
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && len(text) > 0 {
			ts.Logf("log of muster %s:\n%s", command, text)
		}
	})
	stuck := time.AfterFunc(commandTimeout, func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	stuck.Stop()
	close(read)
	ts.Check(err)
	*ts.Value(processKey{}).(*process) = process{cmd.Process, ended}
	var ready struct {
		URL        string `json:"url"`
		AdminToken string `json:"admin_token"`
		JoinToken  string `json:"join_token"`
	}
	ts.Check(json.Unmarshal(line, &ready))
	admin, pin := auth.SplitToken(ready.AdminToken)
	join, _ := auth.SplitToken(ready.JoinToken)
	if admin != ts.Getenv("MUSTER_ADMIN_TOKEN") || join != ts.Getenv("MUSTER_JOIN_TOKEN") {
		ts.Fatalf("the preset tokens are not those of the server: %s", line)
	}
	ts.Setenv("URL", ready.URL)
	_, address, _ := strings.Cut(ready.URL, "://")
	ts.Setenv("ADDRESS", address)
	ts.Setenv("PIN", pin) // fingerprint of its certificate authority
	ts.Setenv("PID", strconv.Itoa(cmd.Process.Pid))
	if command == "up" {
		untilCommand(ts, false, []string{"active", "muster", "workers"})
	}
}

// crashCommand kills the last background process with SIGKILL. Its port is free when it returns.
func crashCommand(ts *testscript.TestScript, _ bool, _ []string) {
	last := ts.Value(processKey{}).(*process)
	ts.Check(last.process.Kill())
	<-last.ended
}

// environment returns the variables of a script for background commands.
func environment(ts *testscript.TestScript) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "WORK", "TMPDIR", "MUSTER_CONFIG", "XDG_DATA_HOME", "GORACE", "MUSTER_ADMIN_TOKEN", "MUSTER_JOIN_TOKEN"} {
		env = append(env, name+"="+ts.Getenv(name))
	}
	return env
}

// exitsCommand runs a command and checks its exit status: exits STATUS CMD ARG…
func exitsCommand(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: exits STATUS CMD ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// untilCommand repeats a command until its standard output contains a text: until TEXT CMD ARG…
func untilCommand(ts *testscript.TestScript, _ bool, args []string) {
	for end := time.Now().Add(commandTimeout); ; time.Sleep(20 * time.Millisecond) {
		_ = ts.Exec(args[1], args[2:]...)
		if strings.Contains(ts.ReadFile("stdout"), args[0]) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%q did not appear within %s", args[0], commandTimeout)
		}
	}
}

// masks replace values that differ between runs.
var masks = []struct {
	re *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`), "TIME"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d JST`), "TIME"},
	{regexp.MustCompile(`\bw-[a-z0-9]{6,}`), "WORKER"},
	{regexp.MustCompile(`\bk-?[a-z0-9]{8,}\b`), "KEY"},
	{regexp.MustCompile(`\bmst_[a-z]+_[a-z0-9]{20,}`), "SECRET"},
	{regexp.MustCompile(`\bmst_([a-z]+)_[a-z0-9]{4}…`), "mst_${1}_PREF…"},
	{regexp.MustCompile(`http://127\.0\.0\.1:\d+`), "URL"},
	// Usage has only measured values: memory if it exceeds that of the worker, most others after the first sample.
	{regexp.MustCompile(`,\s+"(cpu_peak|memory_avg|memory_peak|disk_peak|read_bytes|write_bytes|net_in|net_out|pids_peak)": [0-9.e+-]+`), ""},
	{regexp.MustCompile(`"(wall_seconds|cpu_seconds|cpu_avg|log_size)": [0-9.e+-]+`), `"$1": N`},
	{regexp.MustCompile(`(?m)^used +.*\n`), ""}, // tasks shorter than 0.1 s have none
	{regexp.MustCompile(`\d+\.\d\d cores( \(peak [0-9.]+\))?(, [0-9.]+[KMGT]iB memory)?`), "N cores"},
	{regexp.MustCompile(`\bjust now\b`), "SPAN"},
	{regexp.MustCompile(`(  )now\b`), "${1}SPAN"},
	{regexp.MustCompile(`\b\d+(ms|\.\ds|m\d\ds|[sm])( ago)?\b`), "SPAN"},
	{regexp.MustCompile(`[0-9.]+[KMGT]iB`), "SIZE"},
	{regexp.MustCompile(`go1\.[0-9.]+`), "GO"},
	{regexp.MustCompile(`(linux|darwin|windows|freebsd)/(amd64|arm64)`), "PLATFORM"},
	{regexp.MustCompile(`(\S) {2,}`), "$1  "},
}

// maskCommand writes the last standard output to a file, with masks applied: mask FILE
func maskCommand(ts *testscript.TestScript, _ bool, args []string) {
	text := ts.ReadFile("stdout")
	for _, m := range masks {
		text = m.re.ReplaceAllString(text, m.by)
	}
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimRight(line, " \n")+"\n")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Join(lines, "")), 0o600))
}
