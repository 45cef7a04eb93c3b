package dtf

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/fleet"
)

// restWorker is a worker that was registered by REST. It is offline until it connects to /ws.
type restWorker struct {
	hostname string
	at       time.Time
	caps     capabilities
}

// summary is a worker for clients.
type summary struct {
	ID            string         `json:"worker_id"`
	Hostname      string         `json:"hostname"`
	Status        string         `json:"status"` // active, busy or offline
	LastHeartbeat *string        `json:"last_heartbeat"`
	Capabilities  map[string]any `json:"capabilities_summary"`
}

func (g *gateway) summarize(w *fleet.Worker, now time.Time) summary {
	f := w.Facts()
	s := summary{ID: w.ID(), Hostname: cmp.Or(f.Labels[labelHost], f.Name), Status: "active", Capabilities: capsSummary(f.Resources, f.Tags)}
	if seen := w.LastSeen(); !seen.IsZero() {
		s.LastHeartbeat = formatNaive(seen)
	}
	switch {
	case w.Err() != nil || now.Sub(w.LastSeen()) > g.settings.grace:
		s.Status = "offline"
	case slices.ContainsFunc(w.Tasks(), (*fleet.Task).Started):
		s.Status = "busy"
	}
	return s
}

func capsSummary(r muster.Resources, hardware []string) map[string]any {
	m := map[string]any{"hardware": hardware, "cpu_cores": r.CPUs, "memory_gb": float64(r.Memory) / gigabytes}
	if len(r.GPUs) > 0 {
		m["gpu"] = r.GPUs[0].Name
		m["gpu_count"] = len(r.GPUs)
	}
	return m
}

func (g *gateway) summaries(now time.Time) []summary {
	list := []summary{}
	for _, w := range g.fleet.Workers() {
		list = append(list, g.summarize(w, now))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, info := range g.preregistered {
		if !slices.ContainsFunc(list, func(s summary) bool { return s.ID == id }) {
			list = append(list, summary{ID: id, Hostname: info.hostname, Status: "offline", Capabilities: capsSummary(toResources(id, &info.caps), workerTags(&info.caps))})
		}
	}
	slices.SortFunc(list, func(a, b summary) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

func (g *gateway) listWorkers(w http.ResponseWriter, _ *http.Request, _ *access) error {
	dialect.WriteJSON(w, http.StatusOK, map[string]any{"workers": g.summaries(time.Now())})
	return nil
}

func (g *gateway) showWorker(w http.ResponseWriter, r *http.Request, _ *access) error {
	for _, s := range g.summaries(time.Now()) {
		if s.ID == r.PathValue("id") {
			dialect.WriteJSON(w, http.StatusOK, s)
			return nil
		}
	}
	return muster.Errorf(muster.NotFound, "Worker not found: %s", sanitizeName(r.PathValue("id")))
}

// registerWorker registers a worker before it connects: with hostname and capabilities (R0, R1), or with host and port (HEAD).
func (g *gateway) registerWorker(w http.ResponseWriter, r *http.Request, _ *access) error {
	var q struct {
		WorkerID     string          `json:"worker_id"`
		Hostname     string          `json:"hostname"`
		Host         string          `json:"host"`
		Port         json.RawMessage `json:"port"`
		Capabilities capabilities    `json:"capabilities"`
	}
	if err := dialect.Decode(r, maxBody, &q); err != nil {
		return err
	}
	if err := checkID("worker_id", q.WorkerID); err != nil {
		return err
	}
	hostname := cmp.Or(q.Hostname, q.Host)
	if hostname == "" {
		return muster.Errorf(muster.Invalid, "Missing required field: hostname")
	}
	if q.WorkerID == "" {
		q.WorkerID = dialect.NewUUID()
	}
	g.mu.Lock()
	if len(g.preregistered) >= maxRegistered {
		oldest := ""
		for id, info := range g.preregistered {
			if oldest == "" || info.at.Before(g.preregistered[oldest].at) {
				oldest = id
			}
		}
		delete(g.preregistered, oldest)
	}
	g.preregistered[q.WorkerID] = restWorker{hostname: sanitizeName(hostname), at: time.Now(), caps: q.Capabilities}
	g.mu.Unlock()
	dialect.WriteJSON(w, http.StatusOK, map[string]any{
		"success": true, "registered": true, "status": statusSuccess, "worker_id": q.WorkerID, "message": "Worker registered: connect to /ws",
	})
	return nil
}
