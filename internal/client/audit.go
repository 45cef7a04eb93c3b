package client

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

type (
	// AuditRecord is a record of the audit log.
	AuditRecord = wire.AuditRecord
	// AuditVerification is the result of a verification of the audit log.
	AuditVerification = wire.AuditVerification
)

// AuditQuery selects records of the audit log. Empty fields mean any.
type AuditQuery struct {
	Since, Until                             muster.Time
	Key, Operation, Object, Project, Outcome string
	After                                    int64 // only records with a higher number
	Oldest                                   bool  // the oldest first
	Page                                     int   // rows of one request; 0 means the server's default
}

// Audit lists records of the audit log, the newest first by default.
func (c *Client) Audit(ctx context.Context, q AuditQuery) iter.Seq2[AuditRecord, error] {
	v := url.Values{}
	set(v, "since", q.Since.String())
	set(v, "until", q.Until.String())
	set(v, "key", q.Key)
	set(v, "operation", q.Operation)
	set(v, "object", q.Object)
	set(v, "project", q.Project)
	set(v, "outcome", q.Outcome)
	if q.After > 0 {
		v.Set("after", strconv.FormatInt(q.After, 10))
	}
	if q.Oldest {
		v.Set("order", "oldest")
	}
	return pages(v, q.Page, func(v url.Values) ([]AuditRecord, string, error) {
		page, err := get[wire.AuditPage](ctx, c, "/audit", v)
		return page.Records, page.Next, err
	})
}

// VerifyAudit makes the server verify its whole audit log. head, if not empty, is a head that was noted earlier, HASH@SEQ.
func (c *Client) VerifyAudit(ctx context.Context, head string) (AuditVerification, error) {
	v := url.Values{}
	set(v, "head", head)
	return get[AuditVerification](ctx, c, "/audit/verify", v)
}

// ExportAudit calls read with an export of the audit log as it arrives, and returns its error.
func (c *Client) ExportAudit(ctx context.Context, read func(io.Reader) error) error {
	return c.download(ctx, "/audit/export", read)
}

// download calls read with the answer of a GET request as it arrives, and returns its error.
func (c *Client) download(ctx context.Context, path string, read func(io.Reader) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.send(ctx, http.MethodGet, path, nil, nil, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	ctx, resetWatchdog, stop := withWatchdog(ctx, stallTimeout)
	defer stop()
	defer context.AfterFunc(ctx, cancel)()
	body := &watchedReader{r: resp.Body, resetWatchdog: resetWatchdog}
	err = read(body)
	if body.err != nil {
		return c.unreachableError(ctx, body.err)
	}
	return err
}
