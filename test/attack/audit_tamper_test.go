//go:build unix

package attack

import (
	"context"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ncruces/go-sqlite3/driver"

	"github.com/muster-dev/muster/internal/audit"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
)

// interrupt makes a server shut down.
const interrupt = syscall.SIGTERM

// muster runs the program with the cluster's server and administrator.
func (e *env) muster(args ...string) string {
	e.t.Helper()
	out, err := e.run("", args...)
	if err != nil {
		e.t.Fatalf("muster %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (e *env) run(stdin string, args ...string) (string, error) {
	e.t.Helper()
	cmd := exec.CommandContext(e.t.Context(), mustertest.Program(e.t), args...)
	cmd.Env = append(os.Environ(), "MUSTER_SERVER="+e.URL, "MUSTER_TOKEN="+mustertest.AdminToken, "MUSTER_CONFIG="+filepath.Join(e.t.TempDir(), "context.json"))
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// verifyFile verifies an export without a server.
func (e *env) verifyFile(text string, args ...string) (string, error) {
	e.t.Helper()
	return e.run(text, append([]string{"audit", "verify", "--file", "-", "--server", "http://127.0.0.1:1"}, args...)...)
}

// tamper edits the database of the stopped server and starts it again.
func (e *env) tamper(edit func(ctx context.Context, db *sql.DB) error) {
	e.t.Helper()
	e.Server.Signal(interrupt)
	<-e.Server.Done()
	db, err := driver.Open(filepath.Join(e.DataDir, "muster.db"))
	if err == nil {
		err = edit(e.t.Context(), db)
	}
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		e.t.Fatal(err)
	}
	e.StartServer()
}

func statements(list ...string) func(context.Context, *sql.DB) error {
	return func(ctx context.Context, db *sql.DB) error {
		for _, s := range list {
			if _, err := db.ExecContext(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
}

// tampered makes a log of some changes, lets edit change it in the database, and returns the verifications without and with a head that was noted before.
func tampered(t *testing.T, edit func(ctx context.Context, db *sql.DB) error) (alone, noted client.AuditVerification) {
	t.Helper()
	e := newEnv(t)
	for range 10 {
		e.key("viewer", "a", 0)
	}
	head := e.verify("").Head
	e.tamper(edit)
	var err error
	if alone, err = e.Client.VerifyAudit(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if noted, err = e.Client.VerifyAudit(t.Context(), head); err != nil {
		t.Fatal(err)
	}
	return alone, noted
}

func expectProblem(t *testing.T, v client.AuditVerification, seq int64) {
	t.Helper()
	if v.Intact || v.Seq != seq || v.Problem == "" {
		t.Errorf("the verification is %+v, want a problem at record %d", v, seq)
	}
}

// A record that was altered in the database is found.
func TestAnAlteredRecordIsFound(t *testing.T) {
	t.Parallel()
	v, _ := tampered(t, statements(`UPDATE audit_log SET key_name = 'someone else' WHERE seq = 7`))
	expectProblem(t, v, 7)
}

// A record that was removed from the database is found.
func TestARemovedRecordIsFound(t *testing.T) {
	t.Parallel()
	v, _ := tampered(t, statements(`DELETE FROM audit_log WHERE seq = 7`))
	expectProblem(t, v, 7)
}

// A record that was removed is found, also if the others were numbered again.
func TestARenumberedLogIsFound(t *testing.T) {
	t.Parallel()
	v, _ := tampered(t, statements(`DELETE FROM audit_log WHERE seq = 7`,
		`CREATE TABLE t AS SELECT * FROM audit_log WHERE seq > 7`, `DELETE FROM audit_log WHERE seq > 7`, `UPDATE t SET seq = seq - 1`, `INSERT INTO audit_log SELECT * FROM t`, `DROP TABLE t`))
	expectProblem(t, v, 7)
}

// A record that was inserted between others is found.
func TestAnInsertedRecordIsFound(t *testing.T) {
	t.Parallel()
	v, _ := tampered(t, statements(`CREATE TABLE t AS SELECT * FROM audit_log WHERE seq >= 7`, `DELETE FROM audit_log WHERE seq >= 7`, `INSERT INTO audit_log SELECT * FROM t WHERE seq = 7`,
		`UPDATE t SET seq = seq + 1`, `INSERT INTO audit_log SELECT * FROM t`, `DROP TABLE t`))
	expectProblem(t, v, 8)
}

// Records in another order are found.
func TestReorderedRecordsAreFound(t *testing.T) {
	t.Parallel()
	v, _ := tampered(t, statements(`UPDATE audit_log SET seq = 1000 WHERE seq = 7`, `UPDATE audit_log SET seq = 7 WHERE seq = 8`, `UPDATE audit_log SET seq = 8 WHERE seq = 1000`))
	expectProblem(t, v, 7)
}

// The first records cannot be removed as if by retention: the removal must be in the log.
func TestAForgedBaseIsFound(t *testing.T) {
	t.Parallel()
	v, _ := tampered(t, statements(`UPDATE audit_base SET seq = 5, hash = (SELECT hash FROM audit_log WHERE seq = 5)`, `DELETE FROM audit_log WHERE seq <= 5`))
	expectProblem(t, v, 5)
}

// The last records can be removed unnoticed, but not from someone who has noted the head.
func TestARemovedTailIsFoundByANotedHead(t *testing.T) {
	t.Parallel()
	alone, noted := tampered(t, statements(`DELETE FROM audit_log WHERE seq > 6`))
	if !alone.Intact {
		t.Errorf("without a head: %+v", alone)
	}
	if noted.Intact {
		t.Errorf("with the head: %+v", noted)
	}
}

// Someone who writes the database can write the whole log again, with right hashes, but not for someone who has noted the head.
func TestARewrittenLogIsFoundByANotedHead(t *testing.T) {
	t.Parallel()
	alone, noted := tampered(t, func(ctx context.Context, db *sql.DB) error {
		rows, err := db.QueryContext(ctx, `SELECT seq, at, key_id, key_name, role, worker, address, via, operation, object, project, outcome, status, detail, request, n, until_at FROM audit_log ORDER BY seq`)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		var all []audit.Record
		for rows.Next() {
			var r audit.Record
			if err := rows.Scan(&r.Seq, &r.At, &r.Key, &r.KeyName, &r.Role, &r.Worker, &r.Address, &r.Via, &r.Operation, &r.Object, &r.Project, &r.Outcome, &r.Status, &r.Detail, &r.Request, &r.Count, &r.Until); err != nil {
				return err
			}
			all = append(all, r)
		}
		if err := rows.Err(); err != nil {
			return err
		}
		var head audit.Head
		for i := range all {
			if i == 6 {
				all[i].KeyName = "someone else"
			}
			head = audit.Append(head, 0, &all[i])
			if _, err := db.ExecContext(ctx, `UPDATE audit_log SET key_name = ?, hash = ? WHERE seq = ?`, all[i].KeyName, all[i].Hash.String(), all[i].Seq); err != nil {
				return err
			}
		}
		return nil
	})
	if !alone.Intact {
		t.Errorf("without a head: %+v", alone)
	}
	if noted.Intact {
		t.Errorf("with the head: %+v", noted)
	}
}
