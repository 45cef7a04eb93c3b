package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/streaming"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/audit"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/store"
)

func (s *server) auditRoutes() {
	at := rest.Path("/audit")
	rest.Handle(s.router, rest.Route{ID: "list-audit-records", Method: http.MethodGet, Path: at, Tag: "audit", Verb: auth.ReadAudit,
		Summary: "List records of the audit log, newest first by default. To follow it, ask for those after the last number, oldest first"}, s.listAudit)
	rest.Handle(s.router, rest.Route{ID: "verify-audit-log", Method: http.MethodGet, Path: at + "/verify", Tag: "audit", Verb: auth.ReadAudit,
		Summary: "Verify the hash chain of the whole audit log, which must not have been changed since it was written"}, s.verifyAudit)
	rest.Stream(s.router, rest.Route{ID: "export-audit-log", Method: http.MethodGet, Path: at + "/export", Tag: "audit", Verb: auth.ReadAudit, ContentType: "application/x-ndjson", Audit: rest.AuditRead,
		Summary: "Export the audit log as lines of JSON: the base, all records, and the head. It is complete only if it ends with the head"}, s.exportAudit)
}

type listAuditInput struct {
	rest.Page
	Since     time.Time `query:"since" doc:"recorded then or later"`
	Until     time.Time `query:"until" doc:"recorded then or earlier"`
	Key       string    `query:"key" maxLength:"128" doc:"id or name of the caller's key"`
	Operation string    `query:"operation" maxLength:"128" example:"cancel-job"`
	Object    string    `query:"object" maxLength:"128" example:"job/17"`
	Project   string    `query:"project" maxLength:"128"`
	Outcome   string    `query:"outcome" enum:"allowed,denied,failed"`
	After     int64     `query:"after" minimum:"0" maximum:"9007199254740991" doc:"only records with a higher number"`
	Order     string    `query:"order" enum:"newest,oldest" default:"newest"`
}

func (s *server) listAudit(ctx context.Context, in *listAuditInput) (*rest.Response[wire.AuditPage], error) {
	q := store.AuditQuery{
		Since: timeParam(in.Since), Until: timeParam(in.Until), Key: in.Key, Operation: in.Operation, Object: in.Object, Project: in.Project,
		Outcome: audit.Outcome(in.Outcome), After: in.After, OldestFirst: in.Order == "oldest", Limit: in.Limit + 1,
	}
	if in.Cursor != "" {
		n, err := strconv.ParseInt(in.Cursor, 10, 64)
		if err != nil || n < 0 {
			return nil, muster.Errorf(muster.Invalid, "%q is not a cursor: use the cursor of the previous page", in.Cursor)
		}
		if q.OldestFirst {
			q.After = max(q.After, n)
		} else {
			q.Before = n
		}
	}
	page := wire.AuditPage{Records: []wire.AuditRecord{}}
	if !limitToProject(ctx, &q.Project) {
		return rest.Respond(page), nil
	}
	records, err := s.AuditLog.Audit(ctx, q)
	if err != nil {
		return nil, err
	}
	if len(records) > in.Limit {
		records = records[:in.Limit]
		page.Next = strconv.FormatInt(records[in.Limit-1].Seq, 10)
	}
	for i := range records {
		page.Records = append(page.Records, wire.AuditRecord(records[i]))
	}
	return rest.Respond(page), nil
}

type verifyAuditInput struct {
	Head string `query:"head" maxLength:"100" pattern:"^[0-9a-f]{64}@[0-9]{1,18}$" patternDescription:"HASH@SEQ" doc:"a head that was noted earlier, HASH@SEQ: also verify that the log has this record"`
}

func (s *server) verifyAudit(ctx context.Context, in *verifyAuditInput) (*rest.Response[wire.AuditVerification], error) {
	release, err := s.wholeAudit(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	var expected *audit.Head
	if in.Head != "" {
		head, err := audit.ParseHead(in.Head)
		if err != nil {
			return nil, err
		}
		expected = &head
	}
	for {
		base, head, err := s.AuditLog.AuditHeads(ctx)
		if err != nil {
			return nil, err
		}
		v := audit.NewVerifier(base, expected)
		if _, err := s.readAudit(ctx, base.Seq, head.Seq, func(r *audit.Record) error {
			v.Add(r)
			return nil
		}); err != nil {
			return nil, err
		}
		result := v.Result()
		if result.Problem == nil {
			return rest.Respond(wire.NewAuditVerification(result)), nil
		}
		if again, _, err := s.AuditLog.AuditHeads(ctx); err != nil || again == base {
			return rest.Respond(wire.NewAuditVerification(result)), err
		} // else retention has removed records meanwhile
	}
}

// wholeAudit checks that the caller may read the whole log, and limits concurrent readers.
func (s *server) wholeAudit(ctx context.Context) (release func(), err error) {
	if err := auth.Can(principalOf(ctx), auth.ReadAudit, auth.Object{Project: auth.AllProjects}); err != nil {
		return nil, err
	}
	return s.chartLimiter.acquire(ctx)
}

// auditPage is the number of records that are in memory at a time.
const auditPage = 1000

// readAudit calls f for the records after one up to another one, and returns the head of the last.
func (s *server) readAudit(ctx context.Context, after, last int64, f func(*audit.Record) error) (head audit.Head, err error) {
	for {
		page, err := s.AuditLog.Audit(ctx, store.AuditQuery{After: after, Before: last + 1, OldestFirst: true, Limit: auditPage})
		if err != nil {
			return head, err
		}
		for i := range page {
			if err := f(&page[i]); err != nil {
				return head, err
			}
			head = audit.Head{Seq: page[i].Seq, Hash: page[i].Hash}
			after = head.Seq
		}
		if len(page) < auditPage {
			return head, nil
		}
	}
}

func (s *server) exportAudit(w http.ResponseWriter, r *http.Request, _ *struct{}) error {
	ctx := r.Context()
	release, err := s.wholeAudit(ctx)
	if err != nil {
		return err
	}
	defer release()
	base, head, err := s.AuditLog.AuditHeads(ctx)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := bufio.NewWriterSize(streaming.NewWriter(w, r), 64<<10)
	lines := json.NewEncoder(out)
	if err = lines.Encode(wire.AuditBase{Base: base}); err == nil && base != head {
		head, err = s.readAudit(ctx, base.Seq, head.Seq, func(r *audit.Record) error { return lines.Encode((*wire.AuditRecord)(r)) })
	}
	if err == nil {
		err = errors.Join(lines.Encode(wire.AuditHead{Head: head}), out.Flush())
	}
	if err != nil {
		panic(http.ErrAbortHandler) // the client sees that it is not complete
	}
	return nil
}
