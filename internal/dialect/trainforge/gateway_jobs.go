package trainforge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/trainforge/archive"
	"github.com/muster-dev/muster/internal/dialect/trainforge/project"
)

// Labels of jobs that clients of TrainForge submitted.
const (
	jobLabel    = "trainforge.job_id"
	systemLabel = "dialect"
)

const (
	maxZipBytes   = 5 << 30 // bytes of projects that are kept for GET /api/jobs/{id}/files
	defaultListed = 50
	maxShownLog   = 5_000 // lines of a log in one answer
)

// api returns the client with the caller's rights: a key's, or those of the gateway's project where no key is required.
func (g *Gateway) api(req *request) (*client.Client, error) {
	if req.caller.Token == "" && (g.Deps.Config.KeyRequired || req.r.Header.Get("Authorization") != "") {
		return nil, muster.Errorf(muster.Unauthenticated, "the bearer token is not a key of this server")
	}
	return g.Deps.Server.Client(req.caller.Token)
}

// submit is POST /api/jobs and /api/jobs/distributed.
func (g *Gateway) submit(req *request) error {
	c, err := g.api(req)
	if err != nil {
		return err
	}
	u, err := receiveUpload(req.r, g.uploadsDir(), "project_zip", project.MaxBytes)
	if err != nil {
		return err
	}
	defer u.close()
	if u.file == nil {
		return &statusError{http.StatusBadRequest, "Project zip file is required"}
	}
	conf, err := parseConfig(u.fields["config"])
	if err != nil {
		return err
	}
	members := 0
	if strings.HasSuffix(req.r.URL.Path, "/distributed") {
		members = 2
		if s := u.fields["num_workers"]; s != "" {
			if members, err = strconv.Atoi(s); err != nil || members < 1 || members > muster.MaxGangSize {
				return muster.Errorf(muster.Invalid, "num_workers is not a number of workers")
			}
		}
	}
	id := dialect.NewUUID()
	spec, err := g.buildSpec(req.r.Context(), c, u, conf, members)
	if err != nil {
		return err
	}
	spec.Labels[jobLabel] = id
	spec.Project = g.project(req)
	submitted, err := c.Submit(req.r.Context(), spec, client.SubmitOptions{IdempotencyKey: "trainforge-" + id})
	if err != nil {
		return err
	}
	g.storeZip(id, u)
	j := toWireJob(&submitted, nil)
	answer := map[string]any{
		"success": true, "message": "Job submitted successfully", "job_id": id, "project_name": j.Project, "status": statusPending,
		"resources": j.Resources, "created_at": j.CreatedAt, "muster_job": submitted.ID,
	}
	if members > 0 {
		answer["is_distributed"], answer["num_workers"] = true, members
	}
	dialect.WriteJSON(req.w, http.StatusCreated, answer)
	return nil
}

func (g *Gateway) project(req *request) string {
	return cmp.Or(req.caller.Project, g.Deps.Config.Project)
}

func parseConfig(text string) (*config, error) {
	if strings.TrimSpace(text) == "" {
		return nil, &statusError{http.StatusBadRequest, "Job configuration is required"}
	}
	c := &config{}
	if err := json.Unmarshal([]byte(text), c); err != nil {
		return nil, muster.Errorf(muster.Invalid, "Invalid job configuration: %w", err)
	}
	switch {
	case strings.TrimSpace(c.Project.Name) == "":
		return nil, &statusError{http.StatusBadRequest, "Project name is required"}
	case len(c.Environment.BaseImage) > 255:
		return nil, muster.Errorf(muster.Invalid, "environment.base_image is too long")
	}
	_, err := c.Resources.request(true)
	return c, err
}

// buildSpec unpacks a project, uploads it, and returns the job that runs it.
func (g *Gateway) buildSpec(ctx context.Context, c *client.Client, u *upload, conf *config, members int) (*muster.Spec, error) {
	dir, err := os.MkdirTemp(g.uploadsDir(), "project-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // at the next start at the latest
	if err := archive.Unpack(ctx, u.file, u.size, dir, project.Limits); err != nil {
		return nil, err
	}
	workers, err := c.Workers(ctx)
	if err != nil {
		return nil, err
	}
	spec, err := projectSpec(dir, conf, slices.ContainsFunc(workers, func(w muster.Worker) bool {
		return w.State == muster.WorkerActive && len(w.Resources.GPUs) > 0
	}), members)
	if err != nil {
		return nil, err
	}
	spec.Tasks[0].Files, err = c.UploadFolder(ctx, dir, nil)
	return spec, err
}

func (g *Gateway) findJob(req *request, id string) (*client.Client, *muster.Job, []muster.Task, error) {
	c, err := g.api(req)
	if err != nil {
		return nil, nil, nil, err
	}
	if !isID(id) {
		return nil, nil, nil, jobNotFound()
	}
	for j, err := range c.Jobs(req.r.Context(), client.JobQuery{Labels: map[string]string{jobLabel: id}, Project: g.project(req), Page: 1}) {
		if err != nil {
			return nil, nil, nil, err
		}
		whole, err := c.Job(req.r.Context(), j.ID) // with its spec
		if err != nil {
			return nil, nil, nil, err
		}
		var tasks []muster.Task
		for t, err := range c.Tasks(req.r.Context(), j.ID, client.TaskQuery{Page: muster.MaxGangSize}) {
			if err != nil {
				return nil, nil, nil, err
			}
			tasks = append(tasks, t)
		}
		return c, &whole, tasks, nil
	}
	return nil, nil, nil, jobNotFound()
}

func toWireJob(m *muster.Job, tasks []muster.Task) job {
	j := job{
		ID: m.Labels[jobLabel], Project: m.Name, Script: "train.py", Status: wireStatus(m.State), CreatedAt: formatTime(m.CreatedAt), UpdatedAt: formatTime(m.CreatedAt),
		StartedAt: formatTime(m.StartedAt), CompletedAt: formatTime(m.FinishedAt), MusterJob: m.ID,
	}
	if m.FinishedAt != 0 && m.StartedAt != 0 {
		j.Duration = new(m.FinishedAt.Sub(m.StartedAt).Std().Seconds())
	}
	if m.Spec != nil && len(m.Spec.Tasks) == 1 {
		t := &m.Spec.Tasks[0]
		if t.Run != nil && len(t.Run.Argv) == 2 {
			j.Script = t.Run.Argv[1]
		}
		j.Resources = resources{GPU: newAmount(float64(t.Resources.GPUs.Count)), CPU: newAmount(t.Resources.CPUs)}
		if t.Resources.Memory > 0 {
			j.Resources.Memory = memorySize(itoa(int(t.Resources.Memory>>20)) + "Mi")
		}
		if t.Gang != nil {
			j.Distributed, j.NumWorkers = true, t.Gang.Size
		}
		j.Config, _ = json.Marshal(map[string]any{ // texts and numbers
			"project": map[string]any{"name": m.Name}, "training": map[string]any{"script": j.Script}, "resources": j.Resources,
			"environment": map[string]any{"base_image": t.Image},
		})
	}
	var sum float64
	for _, t := range tasks {
		if t.Progress != nil && !t.State.Final() {
			sum += *t.Progress
		}
		if t.State == muster.Succeeded {
			sum++
		}
		if t.Message != "" && j.Error == "" && j.Status == statusFailed {
			j.Error = t.Message
		}
		if t.Worker != "" {
			j.Allocated = append(j.Allocated, string(t.Worker))
		}
		j.UpdatedAt = max(j.UpdatedAt, formatTime(t.StartedAt), formatTime(t.FinishedAt))
	}
	if j.Status == statusCompleted {
		j.Progress = 100
	} else if len(tasks) > 0 {
		j.Progress = 100 * sum / float64(len(tasks))
	}
	if len(tasks) > 0 {
		j.WorkerNode = string(tasks[0].Worker)
	}
	return j
}

// list is GET /api/jobs: worker B's poll, or a client's list.
func (g *Gateway) list(req *request) error {
	if isPoll(req) {
		return g.poll(req)
	}
	c, err := g.api(req)
	if err != nil {
		return err
	}
	limit := defaultListed
	if s := req.r.URL.Query().Get("limit"); s != "" {
		if limit, err = strconv.Atoi(s); err != nil || limit < 1 {
			return muster.Errorf(muster.Invalid, "limit is not a number of jobs")
		}
		limit = min(limit, maxListed)
	}
	want := req.r.URL.Query().Get("status")
	answer := jobList{Success: true, Jobs: []job{}}
	seen := 0
	for m, err := range c.Jobs(req.r.Context(), client.JobQuery{Labels: map[string]string{systemLabel: Name}, Project: g.project(req), Page: min(2*limit, 200)}) {
		if err != nil {
			return err
		}
		if seen++; seen > 10*maxListed || len(answer.Jobs) >= limit {
			break
		}
		if m.Labels[jobLabel] == "" || want != "" && want != wireStatus(m.State) {
			continue
		}
		answer.Jobs = append(answer.Jobs, toWireJob(&m, nil))
	}
	answer.Count = len(answer.Jobs)
	return req.reply(answer)
}

func (g *Gateway) show(req *request) error {
	id := req.r.PathValue("id")
	if t := g.task(req, id); t != nil {
		return req.reply(jobAnswer{Success: true, job: g.taskJob(t, id)})
	}
	_, m, tasks, err := g.findJob(req, id)
	if err != nil {
		return err
	}
	return req.reply(jobAnswer{Success: true, job: toWireJob(m, tasks)})
}

// updateClientJob handles PUT /api/jobs/{id} of a client, which may only cancel its job.
func (g *Gateway) updateClientJob(req *request, id string, body *update) error {
	c, m, tasks, err := g.findJob(req, id)
	if err != nil {
		return err
	}
	current := toWireJob(m, tasks)
	switch {
	case body.Status == statusCancelled && (current.Status == statusPending || current.Status == statusRunning):
		cancelled, err := c.Cancel(req.r.Context(), m.ID, nil)
		if err != nil {
			return err
		}
		cancelled.Spec = m.Spec
		current = toWireJob(&cancelled, tasks)
	case body.Status != "" && body.Status != current.Status:
		return muster.Errorf(muster.Conflict, "the job is %s: clients can only cancel one that has not ended", current.Status)
	}
	return req.reply(jobAnswer{true, "Job updated successfully", current})
}

// remove is DELETE: it cancels the job, which stays in lists.
func (g *Gateway) remove(req *request) error {
	c, m, _, err := g.findJob(req, req.r.PathValue("id"))
	if err != nil {
		return err
	}
	if !m.State.Final() {
		if _, err := c.Cancel(req.r.Context(), m.ID, nil); err != nil && muster.CodeOf(err) != muster.Conflict {
			return err
		}
	}
	return req.reply(map[string]any{"success": true, "message": "Job cancelled successfully"})
}

// logs is GET /api/jobs/{id}/logs: the end of what the job printed.
func (g *Gateway) logs(req *request) error {
	c, _, tasks, err := g.findJob(req, req.r.PathValue("id"))
	if err != nil {
		return err
	}
	lines := []map[string]any{}
	for _, t := range tasks {
		if t.Attempt == 0 {
			continue
		}
		for l, err := range c.Logs(req.r.Context(), t.ID, client.LogOptions{Tail: maxShownLog}) {
			if err != nil {
				return err
			}
			text := strings.TrimRight(string(l.Data), "\r\n")
			if len(tasks) > 1 {
				text = "[rank " + itoa(t.Index) + "] " + text
			}
			lines = append(lines, map[string]any{"timestamp": formatTime(l.At), "message": strings.ToValidUTF8(text, "\uFFFD")})
		}
	}
	return req.reply(map[string]any{"success": true, "logs": lines[max(0, len(lines)-maxShownLog):]})
}

func (g *Gateway) zipPath(id string) string {
	return filepath.Join(g.zipsDir(), filepath.Base(id)+".zip")
}

// storeZip keeps a project for those who want to have it back; the oldest ones make room.
func (g *Gateway) storeZip(id string, u *upload) {
	if os.Rename(u.file.Name(), g.zipPath(id)) != nil {
		return
	}
	list, _ := os.ReadDir(g.zipsDir()) // else nothing makes room
	var all []fs.FileInfo
	var total int64
	for _, e := range list {
		if info, err := e.Info(); err == nil {
			all, total = append(all, info), total+info.Size()
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range all {
		if total <= maxZipBytes {
			return
		}
		if os.Remove(filepath.Join(g.zipsDir(), info.Name())) == nil {
			total -= info.Size()
		}
	}
}

func (g *Gateway) sendProject(req *request, id string) error {
	if _, _, _, err := g.findJob(req, id); err != nil {
		return err
	}
	f, err := os.Open(g.zipPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return &statusError{http.StatusNotFound, "Project files not found"}
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return req.sendFile(f, "project.zip")
}
