package sqlite

import (
	"context"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

var _ store.BlobRefReader = (*Store)(nil)

// UnfinishedSince implements store.BlobRefReader.
func (s *Store) UnfinishedSince(ctx context.Context) (map[muster.WorkerID]muster.Time, error) {
	oldest := map[muster.WorkerID]muster.Time{}
	err := s.readTx(ctx, func(c *conn) error {
		return c.query("SELECT worker, min(ifnull(assigned_at, 0)) FROM task INDEXED BY task_live WHERE finished_at IS NULL AND worker IS NOT NULL GROUP BY worker",
			nil, func(cols *columns) bool {
				worker := muster.WorkerID(cols.text())
				oldest[worker] = cols.time()
				return true
			})
	})
	return oldest, err
}

const selectWorkerBlobs = "SELECT sha256 FROM blob_grant INDEXED BY blob_grant_worker WHERE " + ofWorkers +
	" AND holder = ? AND sha256 > ? AND (at IS NULL OR at >= ?) ORDER BY sha256 LIMIT ?"

// WorkerBlobs implements store.BlobRefReader.
func (s *Store) WorkerBlobs(ctx context.Context, w muster.WorkerID, since muster.Time, after string, limit int) ([]string, error) {
	return readList(ctx, s, selectWorkerBlobs, values(string(store.WorkerGrantee(w)), after, int64(since), limit), text[string])
}

// GrantedBlobs implements store.BlobRefReader.
func (s *Store) GrantedBlobs(ctx context.Context, after string, limit int) ([]string, error) {
	return readList(ctx, s, "SELECT DISTINCT sha256 FROM blob_grant WHERE sha256 > ? ORDER BY sha256 LIMIT ?", values(after, limit), text[string])
}

// The columns of a job in each list, before those of its reference.
const refColumns = "job.id, job.project, job.finished_at, job.kept_at, job.artifacts_removed_at"

// Each list has one statement with the term of its partial index.
const (
	selectSpecBlobs = "SELECT " + refColumns + `, spec FROM job_spec INDEXED BY job_spec_blobs CROSS JOIN job ON job.id = job_spec.job
		WHERE instr(spec, '"sha256:') > 0 AND job_spec.job > ? ORDER BY job_spec.job LIMIT ?`
	selectScheduleBlobs = `SELECT id, project, spec FROM schedule WHERE instr(spec, '"sha256:') > 0 AND id > ? ORDER BY id LIMIT ?`
	selectTaskBlobs     = "SELECT " + refColumns + `, task.id, task.state, task.artifacts, task.checkpoint FROM task INDEXED BY task_blobs CROSS JOIN job ON job.id = task.id >> 24
		WHERE (artifacts IS NOT NULL OR checkpoint IS NOT NULL) AND task.id > ? ORDER BY task.id LIMIT ?`
	selectAttemptBlobs = "SELECT " + refColumns + `, attempt.task, attempt.n, attempt.artifacts FROM attempt INDEXED BY attempt_blobs CROSS JOIN job ON job.id = attempt.task >> 24
		WHERE artifacts IS NOT NULL AND (task, n) > (?, ?) ORDER BY task, n LIMIT ?`
	selectLateBlobs = "SELECT " + refColumns + `, late_report.task, late_report.n, report FROM late_report CROSS JOIN job ON job.id = late_report.task >> 24
		WHERE (task, n) > (?, ?) ORDER BY task, n LIMIT ?`
)

// blobRow is a row of one of the lists.
type blobRow struct {
	store.BlobRef
	expired muster.Time
}

func (r row) blobRow(b *blobRow) {
	number(r, &b.Job)
	text(r, &b.Project)
	optNumber(r, &b.EndedAt)
	var kept muster.Time
	optNumber(r, &kept)
	b.Kept = kept != 0
	optNumber(r, &b.expired)
}

func (b *blobRow) addArtifacts(list []muster.Artifact) {
	for i := range list {
		if muster.IsSHA256(list[i].SHA256) && b.expired == 0 {
			b.Blobs = append(b.Blobs, store.Blob{SHA256: list[i].SHA256, Size: list[i].Size})
		}
	}
}

// refPage reads one page of a list: the rows with references, and all that the page reads.
func refPage(ctx context.Context, s *Store, sql string, bind func(*params), limit int, read func(row, *blobRow)) (page []store.BlobRef, last store.BlobRef, done bool, err error) {
	rows, err := readList(ctx, s, sql, bind, func(r row, b *blobRow) {
		r.blobRow(b)
		read(r, b)
	})
	if err != nil {
		return nil, last, false, err
	}
	for i := range rows {
		if last = rows[i].BlobRef; len(last.Blobs)+len(last.Trees) > 0 {
			page = append(page, last)
		}
	}
	return page, last, len(rows) < limit, nil
}

// SpecBlobs implements store.BlobRefReader.
func (s *Store) SpecBlobs(ctx context.Context, after muster.JobID, limit int) (page []store.BlobRef, next muster.JobID, done bool, err error) {
	page, last, done, err := refPage(ctx, s, selectSpecBlobs, values(int64(after), limit), limit, row.specRefs)
	return page, last.Job, done, err
}

// specRefs adds the references of a spec.
func (r row) specRefs(b *blobRow) {
	// Only what refers to blobs is decoded: specs may be large.
	var spec struct {
		Tasks []struct {
			Files string `json:"files"`
			Stdin string `json:"stdin"`
		} `json:"tasks"`
	}
	jsonField(r, &spec, false)
	for i := range spec.Tasks {
		if tree, ok := strings.CutPrefix(spec.Tasks[i].Files, "sha256:"); ok {
			b.Trees = append(b.Trees, tree)
		}
		if sum, ok := strings.CutPrefix(spec.Tasks[i].Stdin, "sha256:"); ok {
			b.Blobs = append(b.Blobs, store.Blob{SHA256: sum})
		}
	}
}

// ScheduleBlobs implements store.BlobRefReader.
func (s *Store) ScheduleBlobs(ctx context.Context, after store.ScheduleID, limit int) (page []store.BlobRef, next store.ScheduleID, done bool, err error) {
	type ref struct {
		id store.ScheduleID
		blobRow
	}
	rows, err := readList(ctx, s, selectScheduleBlobs, values(int64(after), limit), func(r row, v *ref) {
		number(r, &v.id)
		text(r, &v.Project)
		r.specRefs(&v.blobRow)
	})
	for i := range rows {
		page, next = append(page, rows[i].BlobRef), rows[i].id
	}
	return page, next, len(rows) < limit, err
}

// TaskBlobs implements store.BlobRefReader.
func (s *Store) TaskBlobs(ctx context.Context, after muster.TaskID, limit int) (page []store.BlobRef, next muster.TaskID, done bool, err error) {
	page, last, done, err := refPage(ctx, s, selectTaskBlobs, values(packTask(after), limit), limit, func(r row, b *blobRow) {
		r.taskID(&b.Task)
		var (
			state      muster.TaskState
			artifacts  []muster.Artifact
			checkpoint string
		)
		number(r, &state)
		jsonList(r, &artifacts)
		optText(r, &checkpoint)
		b.addArtifacts(artifacts)
		if checkpoint != "" && state != muster.Succeeded && b.expired == 0 {
			b.Trees = []string{checkpoint}
		}
	})
	return page, last.Task, done, err
}

// AttemptBlobs implements store.BlobRefReader.
func (s *Store) AttemptBlobs(ctx context.Context, after muster.AttemptID, limit int) (page []store.BlobRef, next muster.AttemptID, done bool, err error) {
	page, last, done, err := refPage(ctx, s, selectAttemptBlobs, values(packTask(after.Task), after.N, limit), limit, func(r row, b *blobRow) {
		r.attemptRef(b)
		var artifacts []muster.Artifact
		jsonList(r, &artifacts)
		b.addArtifacts(artifacts)
	})
	return page, muster.AttemptID{Task: last.Task, N: last.Attempt}, done, err
}

// LateBlobs implements store.BlobRefReader.
func (s *Store) LateBlobs(ctx context.Context, after muster.AttemptID, limit int) (page []store.BlobRef, next muster.AttemptID, done bool, err error) {
	page, last, done, err := refPage(ctx, s, selectLateBlobs, values(packTask(after.Task), after.N, limit), limit, func(r row, b *blobRow) {
		r.attemptRef(b)
		var report struct {
			Artifacts []muster.Artifact `json:"artifacts"`
		}
		jsonField(r, &report, false)
		b.addArtifacts(report.Artifacts)
	})
	return page, muster.AttemptID{Task: last.Task, N: last.Attempt}, done, err
}

func (r row) attemptRef(b *blobRow) {
	r.taskID(&b.Task)
	number(r, &b.Attempt)
}
