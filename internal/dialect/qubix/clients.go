package qubix

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/lenient"
)

// The labels of a job that a QUBIX client created, for fields of the protocol that Muster does not have.
const (
	labelJob     = "qubix.job" // the secret part of its id, which grants access to the job
	labelJobType = "qubix.job_type"
	labelModel   = "qubix.model_type"
	labelCompute = "qubix.compute_needed"
	labelUser    = "qubix.address"
	labelEscrow  = "qubix.escrow"
	labelPrice   = "qubix.max_price"
)

const (
	maxUserJobs = 100
	maxLogLines = 1000
)

type foundJob struct {
	api    *client.Client
	job    muster.Job
	task   muster.Task
	worker *muster.Worker // of the last attempt, nil for none
}

// findJob finds a job by the id of the gateway. It is NotFound for a job that was not created here.
func (g *Gateway) findJob(r *http.Request) (*foundJob, error) {
	notFound := muster.Errorf(muster.NotFound, "Job not found")
	digits, secret, ok := strings.Cut(r.PathValue("job"), "-")
	id, err := muster.ParseJobID(digits)
	if !ok || err != nil || secret == "" {
		return nil, notFound
	}
	api, err := g.client(r.Context())
	if err != nil {
		return nil, err
	}
	j, err := api.Job(r.Context(), id)
	if err != nil {
		if muster.CodeOf(err) == muster.NotFound {
			return nil, notFound
		}
		return nil, err
	}
	if subtle.ConstantTimeCompare([]byte(j.Labels[labelJob]), []byte(secret)) != 1 {
		return nil, notFound
	}
	f := &foundJob{api: api, job: j}
	if f.task, err = api.Task(r.Context(), muster.TaskID{Job: id}); err != nil {
		return nil, err
	}
	if f.task.Worker != "" {
		if w, err := api.Worker(r.Context(), string(f.task.Worker)); err == nil { // it may be removed
			f.worker = &w
		}
	}
	return f, nil
}

// toWireJob converts a job for clients. t is nil if it is not known.
func (g *Gateway) toWireJob(m muster.Job, t *muster.Task) job {
	j := job{
		ID: m.ID.String() + "-" + m.Labels[labelJob], UserID: m.Labels[labelUser], ModelType: m.Labels[labelModel], EscrowTxHash: m.Labels[labelEscrow],
		Status: statusPending, CreatedAt: m.CreatedAt.String(), CompletedAt: formatTime(m.FinishedAt),
	}
	if v, err := strconv.ParseFloat(m.Labels[labelCompute], 64); err == nil {
		j.ComputeNeeded = &v
	}
	name := m.Labels[labelJobType]
	if m.Spec != nil && len(m.Spec.Tasks) == 1 {
		shown := toWorkerJob(j.ID, "", &m.Spec.Tasks[0], false)
		j.InputData = shown.InputData
		name = orDefault(name, wireType(&m.Spec.Tasks[0]))
	}
	name = orDefault(name, j.ModelType)
	j.JobType = &name
	if t == nil {
		return j
	}
	j.Status = wireStatus(t.State.String())
	j.StartedAt = formatTime(t.StartedAt)
	if t.State == muster.Succeeded {
		j.Progress = 100
	} else if t.Progress != nil {
		j.Progress = int(math.Floor(*t.Progress * 100))
	}
	if t.Step != "" {
		j.CurrentOperation = &t.Step
	}
	j.Result = t.Result
	if t.State.Final() && t.State != muster.Succeeded {
		j.Error = new(orDefault(t.Message, string(t.Reason)))
	}
	if t.Usage != nil {
		j.ActualCost, j.ActualDuration = &t.Usage.Cost, &t.Usage.WallSeconds
	}
	return j
}

// providerID returns the id with which a worker registered here, or Muster's id of another worker.
func (g *Gateway) providerID(w *muster.Worker) string {
	for _, fw := range g.Fleet.Workers() {
		if fw.Facts().Name == w.Name && w.Labels["dialect"] == Name {
			return fw.ID()
		}
	}
	return string(w.ID)
}

var wireStatuses = map[string]string{ //nolint:gochecknoglobals // a constant table
	muster.Waiting.String(): statusPending, muster.Queued.String(): statusPending, muster.Assigned.String(): statusAssigned,
	muster.Running.String(): statusRunning, muster.Cancelling.String(): statusRunning,
	muster.Succeeded.String(): statusCompleted, muster.Cancelled.String(): statusCancelled,
}

// wireStatus converts the state of a task or of a job.
func wireStatus(state string) string { return cmp.Or(wireStatuses[state], statusFailed) }

// jobPart returns the fields of an answer about a job.
type jobPart func(ctx context.Context, f *foundJob, row *job) (map[string]any, error)

// withJob returns a handler that finds the requested job and answers with the fields of a part.
func (g *Gateway) withJob(part jobPart) dialect.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		f, err := g.findJob(r)
		if err != nil {
			return err
		}
		row := g.toWireJob(f.job, &f.task)
		if f.worker != nil {
			row.ProviderID = new(g.providerID(f.worker))
		}
		answer, err := part(r.Context(), f, &row)
		if err != nil {
			return err
		}
		answer["success"] = true
		return dialect.Reply(w, answer)
	}
}

// showJob returns the fields of the job, and the job as an object in the field job.
func showJob(_ context.Context, _ *foundJob, row *job) (map[string]any, error) {
	var fields map[string]any
	if err := json.Unmarshal(lenient.MustMarshal(row), &fields); err != nil {
		return nil, err
	}
	fields["job"] = row
	return fields, nil
}

func showStatus(_ context.Context, _ *foundJob, row *job) (map[string]any, error) {
	return map[string]any{
		"id": row.ID, "jobId": row.ID, "status": row.Status, "progress": row.Progress, "currentOperation": row.CurrentOperation,
		"error": row.Error, "startedAt": row.StartedAt, "completedAt": row.CompletedAt,
	}, nil
}

func monitor(ctx context.Context, f *foundJob, row *job) (map[string]any, error) {
	lines, err := f.tailLog(ctx, 50)
	if err != nil {
		return nil, err
	}
	answer, _ := showStatus(ctx, f, row) // never fails
	answer["job"], answer["logs"] = row, lines
	answer["metrics"] = f.task.Metrics
	if f.task.State != muster.Running || f.task.StartedAt == 0 {
		return answer, nil
	}
	seconds := muster.NewTime(time.Now()).Sub(f.task.StartedAt).Seconds()
	if done := f.task.Progress; done != nil && *done > 0 {
		answer["timeRemaining"] = int(seconds * (1 - *done) / *done)
	}
	if f.worker != nil {
		answer["costSoFar"] = seconds / 3600 * f.worker.Price
		answer["provider"] = map[string]any{"id": row.ProviderID, "name": f.worker.Name, "pricePerHour": f.worker.Price, "location": f.worker.Labels[labelLocation]}
	}
	return answer, nil
}

// showMetrics returns reported and measured values.
func showMetrics(ctx context.Context, f *foundJob, row *job) (map[string]any, error) {
	answer := map[string]any{"jobId": row.ID, "status": row.Status, "progress": row.Progress, "metrics": []any{}, "current": nil}
	if f.task.Attempt == 0 {
		return answer, nil
	}
	series, err := f.api.Usage(ctx, f.task.ID, 0, 200)
	if err != nil {
		return nil, err
	}
	points := make([]map[string]any, 0, len(series.Samples))
	for i := range series.Samples {
		points = append(points, samplePoint(&series.Samples[i]))
	}
	answer["current"], answer["metrics"], answer["usage"] = f.task.Metrics, points, series.Usage
	return answer, nil
}

// samplePoint converts a sample to QUBIX's units: percent, megabytes, degrees Celsius, watts.
func samplePoint(s *muster.Sample) map[string]any {
	p := map[string]any{"timestamp": s.At}
	if s.CPU != nil {
		p["cpuCores"] = *s.CPU
	}
	if s.Memory != nil {
		p["memoryMb"] = float64(*s.Memory) / (1 << 20)
	}
	if len(s.GPUs) > 0 {
		_ = json.Unmarshal(lenient.MustMarshal(toGPUMetrics(&s.GPUs[0].GPULoad, 0)), &p) // numbers
	}
	return p
}

func showLog(ctx context.Context, f *foundJob, row *job) (map[string]any, error) {
	lines, err := f.tailLog(ctx, maxLogLines)
	return map[string]any{"jobId": row.ID, "logs": lines, "count": len(lines)}, err
}

func (f *foundJob) tailLog(ctx context.Context, limit int) ([]logLine, error) {
	list := []logLine{}
	if f.task.Attempt == 0 {
		return list, nil
	}
	for l, err := range f.api.Logs(ctx, f.task.ID, client.LogOptions{Tail: limit}) {
		if err != nil {
			return nil, err
		}
		if len(list) >= limit {
			list = list[1:]
		}
		list = append(list, toLogLine(l))
	}
	return list, nil
}

func toLogLine(l client.LogLine) logLine {
	level := "info"
	if l.Stream == client.Stderr {
		level = "error"
	}
	return logLine{Level: level, Message: strings.TrimRight(strings.ToValidUTF8(string(l.Data), "�"), "\r\n"), Timestamp: l.At.String()}
}

func cancelJob(ctx context.Context, f *foundJob, row *job) (map[string]any, error) {
	if f.job.State.Final() {
		return nil, muster.Errorf(muster.Conflict, "Job is already %s", row.Status)
	}
	_, err := f.api.Cancel(ctx, f.job.ID, nil)
	return map[string]any{"id": row.ID, "status": statusCancelled}, err
}

// userJobs serves GET /api/jobs/user/{address}: a list, newest first.
func (g *Gateway) userJobs(w http.ResponseWriter, r *http.Request, address string) error {
	list := []job{}
	if address = lenient.Text(address, maxText); address == "" {
		return dialect.Reply(w, list)
	}
	api, err := g.client(r.Context())
	if err != nil {
		return err
	}
	for m, err := range api.Jobs(r.Context(), client.JobQuery{Labels: map[string]string{labelUser: address}, Page: maxUserJobs}) {
		if err != nil {
			return err
		}
		if m.Labels[labelJob] == "" {
			continue
		}
		row := g.toWireJob(m, nil)
		if row.Status = wireStatus(string(m.State)); row.Status == statusCompleted {
			row.Progress = 100
		} else if m.Progress != nil {
			row.Progress = int(*m.Progress * 100)
		}
		list = append(list, row)
		if len(list) == maxUserJobs {
			break
		}
	}
	return dialect.Reply(w, list)
}

// toGPUMetrics converts the load of a GPU to QUBIX's units; total is its memory, 0 if unknown.
func toGPUMetrics(l *muster.GPULoad, total muster.Size) gpuMetrics {
	m := gpuMetrics{Temperature: l.Temperature, Power: l.Power, MemoryTotal: lenient.NonZero(float64(total) / (1 << 20))}
	if l.Utilization != nil {
		m.Utilization = new(*l.Utilization * 100)
	}
	if l.Memory != nil {
		m.MemoryUsed = new(float64(*l.Memory) / (1 << 20))
	}
	return m
}

// credentials is the body of POST /api/auth/register and /login.
type credentials struct {
	Email    string `json:"email"`
	Password string `json:"password"`
	Username string `json:"username"`
	Role     string `json:"role"`
}

// account is an account as clients see it. Nothing is stored: its fields are derived from e-mail, password and a secret of this
// server. An account provides the address that joining programs need. Neither the account nor its token grants rights.
type account struct {
	ID           string `json:"id"`
	Name         string `json:"name"`
	Username     string `json:"username"`
	Email        string `json:"email,omitempty"`
	Role         string `json:"role"`
	QubicAddress string `json:"qubicAddress"`
}

func (g *Gateway) account(c *credentials) (account, string, error) {
	email := strings.ToLower(strings.TrimSpace(c.Email))
	switch name, host, ok := strings.Cut(email, "@"); {
	case !ok || name == "" || host == "" || len(email) > 254 || lenient.Text(email, 254) != email:
		return account{}, "", muster.Errorf(muster.Invalid, "email is not an e-mail address")
	case c.Password == "" || len(c.Password) > 1024:
		return account{}, "", muster.Errorf(muster.Invalid, "password is missing, or has more than 1024 bytes")
	}
	digest := func(purpose string) []byte {
		h := hmac.New(sha256.New, g.secret)
		h.Write([]byte(purpose + "\x00" + email + "\x00" + c.Password))
		return h.Sum(nil)
	}
	name, _, _ := strings.Cut(email, "@")
	name = lenient.Text(orDefault(c.Username, name), maxText)
	role := cmp.Or(lenient.Text(c.Role, 20), "USER")
	return account{
		ID: hex.EncodeToString(digest("id")[:12]), Name: name, Username: name, Email: email, Role: role,
		QubicAddress: qubicAddress(append(digest("address"), digest("address, second part")...)),
	}, "account-" + base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(digest("token")), nil
}

// qubicAddress encodes 60 or more bytes as an address of QUBIC: 60 letters A to Z.
func qubicAddress(b []byte) string {
	out := make([]byte, 60)
	for i := range out {
		out[i] = 'A' + b[i]%26
	}
	return string(out)
}

// signUp serves POST /api/auth/register and /login. Each password is an account of its own.
func (g *Gateway) signUp(status int) dialect.Handler {
	return dialect.WithBody(maxSmallBody, func(w http.ResponseWriter, _ *http.Request, c *credentials) error {
		user, token, err := g.account(c)
		if err == nil {
			dialect.WriteJSON(w, status, map[string]any{
				"success": true, "token": token, "user": user,
				"wallet": map[string]any{"qubicAddress": user.QubicAddress, "balance": nil},
			})
		}
		return err
	})
}

func (g *Gateway) user(w http.ResponseWriter, r *http.Request) error {
	address := r.PathValue("address")
	if !isAddress(address) {
		return muster.Errorf(muster.NotFound, "User not found")
	}
	user := account{ID: address, Name: address[:8], Username: address[:8], Role: "USER", QubicAddress: address}
	return dialect.Reply(w, map[string]any{"success": true, "user": user})
}
