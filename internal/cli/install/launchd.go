package install

import (
	"context"
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/deploy"
)

// launchd installs a daemon of the machine, or an agent of the user.
type launchd struct {
	*Host

	uid int
}

const label = "dev.muster.worker"

func (l *launchd) plist() string {
	if l.user {
		return filepath.Join(l.home, "Library", "LaunchAgents", label+".plist")
	}
	return "/Library/LaunchDaemons/" + label + ".plist"
}

func (l *launchd) log() string {
	if l.user {
		return filepath.Join(l.home, "Library", "Logs", "muster-worker.log")
	}
	return "/usr/local/var/log/muster-worker.log"
}

func (l *launchd) owned() []string { return []string{l.plist()} }

// files returns the property list of package deploy with this worker's arguments, variables and log.
func (l *launchd) files(s *Service) ([]file, error) {
	text, err := deploy.Files.ReadFile("launchd/" + label + ".plist")
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "no property list: %w", err)
	}
	list := string(text)
	var args, env strings.Builder
	for _, arg := range append([]string{s.Program}, s.Args...) {
		args.WriteString("\t\t" + xmlString(arg) + "\n")
	}
	variables := s.Env
	if l.hasToken(s) {
		variables = append([]string{"MUSTER_JOIN_TOKEN_FILE=" + l.tokenFile()}, variables...)
	}
	if !l.user {
		variables = append([]string{"HOME=/var/root", "MUSTER_DATA=" + l.DataDir(), "MUSTER_CONFIG=" + l.DataDir() + "/context.json"}, variables...)
	}
	values := map[string]string{}
	var names []string
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		if _, ok := values[name]; !ok {
			names = append(names, name)
		}
		values[name] = value
	}
	for _, name := range names {
		fmt.Fprintf(&env, "\t\t<key>%s</key>\n\t\t%s\n", escapeXML(name), xmlString(values[name]))
	}
	for _, part := range []struct{ begin, end, text string }{
		{"<key>ProgramArguments</key>\n\t<array>\n", "\t</array>", args.String()},
		{"<key>EnvironmentVariables</key>\n\t<dict>\n", "\t</dict>", env.String()},
		{"<key>StandardErrorPath</key>\n", "</dict>", "\t" + xmlString(l.log()) + "\n"},
	} {
		before, rest, ok := strings.Cut(list, part.begin)
		_, after, ok2 := strings.Cut(rest, part.end)
		if !ok || !ok2 {
			return nil, muster.Errorf(muster.Internal, "the property list has no %q", part.begin)
		}
		list = before + part.begin + part.text + part.end + after
	}
	return []file{{l.plist(), list, 0o644}}, nil
}

// domain is where launchd keeps the job.
func (l *launchd) domain() string {
	if l.user {
		return "gui/" + strconv.Itoa(l.uid)
	}
	return "system"
}

func (l *launchd) commands() [][]string {
	job := l.domain() + "/" + label
	return [][]string{
		{"mkdir", "-p", filepath.Dir(l.log())},
		{optionalCommand, "launchctl", "bootout", job}, // fails if it is not loaded
		{"sh", "-c", "i=0; while launchctl print " + job + " >/dev/null 2>&1 && [ $i -lt 150 ]; do sleep 1; i=$((i+1)); done"}, // bootout does not wait
		{"launchctl", "bootstrap", l.domain(), l.plist()},
	}
}

func (l *launchd) stopCommands() [][]string {
	return [][]string{{optionalCommand, "launchctl", "bootout", l.domain() + "/" + label}}
}

func (l *launchd) reloadCommands() [][]string { return nil }

// awaitConnected returns at once: launchd does not know the state of a service.
func (l *launchd) awaitConnected(context.Context) error { return nil }

func (l *launchd) logCommand() []string { return []string{"tail", "-n", "15", l.log()} }

func (l *launchd) hints() string {
	return fmt.Sprintf("State:  launchctl print %s/%s\nLog:    %s\nRemove: muster worker uninstall%s\n", l.domain(), label, l.log(), map[bool]string{true: " --user"}[l.user])
}

func xmlString(s string) string { return "<string>" + escapeXML(s) + "</string>" }

func escapeXML(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder accepts everything
	return b.String()
}
