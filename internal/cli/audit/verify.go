package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/audit"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

type verifyConfig struct {
	remote.QueryOptions
	head string
	file string
}

func verifyCommand(a *app.App) *cli.Command {
	c := &verifyConfig{}
	c.QuietUsage = "Print only the head, HASH@SEQ"
	return a.NewCommand(app.Command{
		Name: "verify", Usage: "Verify that no record was changed, removed or inserted",
		Description: "Prints the head of the log. Note it elsewhere: only a verification with --head finds that the last records were removed, or that someone who can write the " +
			"database wrote the log again. A log that is not intact is exit status 1.",
		Examples: []app.HelpRow{
			{Name: "muster audit verify -q >> heads.txt", Usage: "Verify, and note the head"},
			{Name: "muster audit verify --head 7f83b165…@1207", Usage: "Also verify that the log still has the record that was noted"},
			{Name: "muster audit verify --file audit.jsonl", Usage: "Verify an export without a server"},
		},
		Flags: c.Flags(
			app.Option{Name: "head", Value: "hash@seq", Usage: "A head that was noted earlier"}.StringVar(&c.head),
			app.Option{Name: "file", Value: "path", Usage: "Verify this export of the log, - for standard input, instead of the server's log"}.StringVar(&c.file)),
		Run: func(ctx context.Context, _ []string) error {
			ctx, stop := app.SignalContext(ctx)
			defer stop()
			result, err := c.verify(ctx, a)
			if err != nil {
				return err
			}
			if result.Problem != "" {
				err = &app.StatusError{Status: app.ExitFailed, Err: fmt.Errorf("the audit log is not intact: %s", result.Problem)}
			}
			return errors.Join(a.Print(c.OutputOptions, result, []string{result.Head}, func() error {
				if result.Intact {
					fmt.Fprintf(a.Out, "intact: %d records\nhead:   %s\n", result.Records, term.Sanitize(result.Head))
				}
				return nil
			}), err)
		},
	})
}

func (c *verifyConfig) verify(ctx context.Context, a *app.App) (client.AuditVerification, error) {
	var expected *audit.Head
	if c.head != "" {
		head, err := audit.ParseHead(c.head)
		if err != nil {
			return client.AuditVerification{}, err
		}
		expected = &head
	}
	if c.file == "" {
		server, err := c.Connect()
		if err != nil {
			return client.AuditVerification{}, err
		}
		return server.VerifyAudit(ctx, c.head)
	}
	in := a.In
	if c.file != "-" {
		f, err := os.Open(c.file)
		if err != nil {
			return client.AuditVerification{}, muster.Errorf(muster.Invalid, "cannot read the export: %w", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	result, err := verifyExport(in, expected)
	return wire.NewAuditVerification(result), err
}

// maxLine is more than the length of a line of an export.
const maxLine = 64 << 10

// verifyExport verifies an export of the log.
func verifyExport(r io.Reader, expected *audit.Head) (none audit.Result, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	n := 0
	var v *audit.Verifier
	var last *wire.AuditHead
	for lines.Scan() {
		n++
		bad := muster.Errorf(muster.Invalid, "line %d is not a line of an export of the audit log: use a file of muster audit export", n)
		switch line := lines.Bytes(); {
		case last != nil:
			return none, bad
		case v == nil:
			var base wire.AuditBase
			if decode(line, &base) != nil {
				return none, bad
			}
			v = audit.NewVerifier(base.Base, expected)
		case bytes.HasPrefix(line, []byte(`{"head":`)):
			last = &wire.AuditHead{}
			if decode(line, last) != nil {
				return none, bad
			}
		default:
			var rec audit.Record
			if decode(line, &rec) != nil {
				return none, bad
			}
			v.Add(&rec)
		}
	}
	switch {
	case lines.Err() != nil:
		return none, muster.Errorf(muster.Invalid, "cannot read the export: %w", lines.Err())
	case last == nil:
		return none, muster.Errorf(muster.Invalid, "the export is not complete: it does not end with the head of the log; export it again")
	}
	result := v.Result()
	if result.Problem == nil && result.Head != last.Head {
		result.Problem = &audit.Problem{Seq: result.Head.Seq + 1, Text: fmt.Sprintf("the export ends with record %d, but says that the last one is %s", result.Head.Seq, last.Head)}
	}
	return result, nil
}

// decode reads one line strictly.
func decode(line []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("more than one value")
	}
	return nil
}

type exportConfig struct {
	remote.ServerOptions
}

func exportCommand(a *app.App) *cli.Command {
	c := &exportConfig{}
	return a.NewCommand(app.Command{
		Name: "export", Usage: "Write the whole log as lines of JSON", Args: "[FILE]",
		Description: "Without a file, or with -, writes to standard output. muster audit verify --file verifies the export without a server.",
		Flags:       c.Flags(),
		Run: func(ctx context.Context, args []string) error {
			if len(args) > 1 {
				return muster.Errorf(muster.Invalid, "muster audit export takes one file")
			}
			ctx, stop := app.SignalContext(ctx)
			defer stop()
			server, err := c.Connect()
			if err != nil {
				return err
			}
			if len(args) == 0 || args[0] == "-" {
				return server.ExportAudit(ctx, func(r io.Reader) error { return export(a.Out, r) })
			}
			f, err := os.OpenFile(args[0], os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if err != nil {
				return muster.Errorf(muster.Conflict, "cannot write the export: %w", err)
			}
			err = server.ExportAudit(ctx, func(r io.Reader) error { return export(f, r) })
			if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
				return errors.Join(err, os.Remove(args[0]))
			}
			a.Messagef("%s: the audit log was exported", args[0])
			return nil
		},
	})
}

// export copies an export and verifies that it is complete and intact.
func export(w io.Writer, r io.Reader) error {
	result, err := verifyExport(io.TeeReader(r, w), nil)
	if err == nil && result.Problem != nil {
		err = fmt.Errorf("the audit log is not intact: %s", result.Problem.Text)
	}
	return err
}
