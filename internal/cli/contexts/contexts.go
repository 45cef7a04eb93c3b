// Package contexts implements muster login and muster context: the servers that the user saved for later commands.
package contexts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
)

// Commands returns the commands login and context.
func Commands(a *app.App) []*cli.Command {
	return []*cli.Command{loginCommand(a), contextCommand(a)}
}

func contextCommand(a *app.App) *cli.Command {
	output := &app.OutputOptions{QuietUsage: "Print only names"}
	return a.NewCommand(app.Command{
		Name: "context", Usage: "Manage saved servers", Category: app.CategorySetup,
		Description: "A context is a saved server with its API key. Commands use the current one unless --server names another.",
		Commands: []*cli.Command{
			a.NewCommand(app.Command{
				Name: "list", Usage: "List saved servers, without their keys", Flags: output.Flags(),
				Run: func(context.Context, []string) error { return list(a, *output) },
			}),
			a.NewCommand(app.Command{
				Name: "use", Usage: "Use a saved server for later commands", Args: "NAME|URL", Complete: app.Completer(remote.CompleteContexts).Once(),
				Run: func(_ context.Context, args []string) error { return use(a, args) },
			}),
			a.NewCommand(app.Command{
				Name: "delete", Usage: "Delete saved servers and their keys from this machine", Args: "NAME|URL…", Complete: remote.CompleteContexts,
				Run: func(_ context.Context, args []string) error { return remove(a, args) },
			}),
		},
	})
}

// entry is a saved server without its secrets.
type entry struct {
	Name    string `json:"name"`
	Server  string `json:"server"`
	Current bool   `json:"current"`
	Data    string `json:"data,omitempty"`
	CA      string `json:"ca,omitempty"` // fingerprint of the server's own certificate authority
}

func list(a *app.App, output app.OutputOptions) error {
	saved, err := remote.LoadContext()
	if err != nil {
		return err
	}
	var all []entry
	for _, s := range saved.Servers {
		all = append(all, entry{Name: s.Name, Server: s.URL, Current: s.URL == saved.Current, Data: s.Data, CA: s.CA})
	}
	l := app.Listing[entry]{
		OutputOptions: output,
		Rows:          app.Seq(all),
		ID:            func(e entry) string { return e.Name },
		Columns:       []term.Column{{Title: "CURRENT", NoTruncate: true}, {Title: "NAME", NoTruncate: true}, {Title: "SERVER"}, {Title: "TLS"}, {Title: "DATA"}},
		Row: func(e entry, _ time.Time) []string {
			mark := ""
			if e.Current {
				mark = "*"
			}
			return []string{mark, e.Name, e.Server, describeTLS(e), e.Data}
		},
		EmptyMessage: "no servers are saved: muster login URL saves one",
	}
	return l.Write(a)
}

// describeTLS returns which authorities a server's certificate may be of, "" without TLS.
func describeTLS(e entry) string {
	switch {
	case e.CA != "":
		return "own CA"
	case strings.HasPrefix(e.Server, "https://"):
		return "system CAs"
	}
	return ""
}

func use(a *app.App, args []string) error {
	if len(args) != 1 {
		return muster.Errorf(muster.Invalid, "give the name or URL of one context: muster context list shows them")
	}
	var server remote.Server
	err := change(func(saved *remote.SavedContext) (err error) {
		server, err = saved.Use(args[0])
		return err
	})
	if err != nil {
		return err
	}
	a.Messagef("commands now use %s (%s)", server.Name, server.URL)
	return nil
}

func remove(a *app.App, args []string) error {
	if len(args) == 0 {
		return muster.Errorf(muster.Invalid, "missing name of a context: muster context list shows them")
	}
	var deleted []remote.Server
	err := change(func(saved *remote.SavedContext) error {
		for _, name := range slices.Compact(slices.Sorted(slices.Values(args))) {
			server, err := saved.Delete(name)
			if err != nil {
				return err
			}
			deleted = append(deleted, server)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, server := range deleted {
		note := ""
		if server.Token != "" {
			note = "; its API key stays valid until it is revoked: muster keys revoke"
		}
		a.Messagef("%s", fmt.Sprintf("context %s deleted", server.Name)+note)
	}
	return nil
}

// change loads the saved servers, calls edit, and saves them if it returns nil.
func change(edit func(*remote.SavedContext) error) error {
	saved, err := remote.LoadContext()
	if err != nil {
		return err
	}
	if err := edit(&saved); err != nil {
		return err
	}
	return saved.Save()
}
