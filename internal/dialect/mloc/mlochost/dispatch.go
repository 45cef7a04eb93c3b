package mlochost

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/mloc"
	"github.com/muster-dev/muster/internal/wake"
)

const (
	fieldTask   = "muster_task"     // the field of a worker's hash in which the gateway notes the task that it published for it. No program of MLOC knows it
	resultsPath = "/api/v1/results" // where results are posted
	headerTask  = "X-Muster-Task"   // the header by which a delivery says for which attempt it is. Workers send headers as the task has them
)

// errNotYet says that a task cannot be published at the moment.
var errNotYet = errors.New("not yet")

// step does what there is to do for the worker.
func (p *remoteWorker) step(ctx context.Context) {
	w := p.worker.Load()
	if w == nil {
		return
	}
	p.g.mu.Lock()
	disabled, redisErr := p.g.disabled[p.id], p.g.redisErr
	p.g.mu.Unlock()
	if disabled != p.disabled {
		p.disabled = disabled
		reason := ""
		if disabled {
			reason = "disabled by POST /workers/" + p.id + "/elastic"
		}
		w.Constrain("elastic", reason)
	}
	if d := p.current; d != nil {
		select {
		case <-d.task.Done():
			p.clearTask()
			wake.Set(p.g.wake)
		default:
			if !d.started && redisErr == nil {
				p.republish(ctx, d)
			}
			return
		}
	}
	tasks := w.Tasks()
	if len(tasks) == 0 || redisErr != nil {
		return
	}
	p.startTask(ctx, tasks[0])
}

// startTask publishes a task, or continues with one that was published before the gateway was restarted.
func (p *remoteWorker) startTask(ctx context.Context, t *fleet.Task) {
	d, err := p.g.prepare(p, t)
	switch {
	case errors.Is(err, errNotYet):
		p.scheduleStep(100 * time.Millisecond)
		return
	case err != nil:
		end := fleet.FinalReport{Outcome: muster.AttemptFailed, Reason: muster.Rejected, Message: mloc.Truncate(err.Error(), 1000)}
		p.finish(ctx, &dispatch{worker: p, task: t, id: t.ID()}, end)
		return
	}
	d.started = t.Started()
	if !d.started {
		// Only its current state in Redis counts, not that of the last sweep.
		if !p.refresh(ctx) || !p.alive || p.disabled {
			p.scheduleStep(p.g.intervals.sweep)
			return
		}
		published := p.raw[fieldTask] == d.id // before a restart of the gateway
		if p.hash.Status != mloc.StatusIdle && !published {
			return // its news of being idle comes
		}
		if published && p.knows(d.id) {
			d.publishCount, d.publishedAt = 1, time.Now() // it has it: see reconcile
		}
	}
	p.current = d
	p.g.mu.Lock()
	p.g.dispatches[d.id] = d
	for _, c := range p.g.mergedIDs(d) {
		p.g.dispatches[c] = d
	}
	p.g.mu.Unlock()
	if d.started || d.publishCount > 0 {
		return
	}
	if !p.g.isDelivered(d) { // what an earlier attempt left is not of this one
		if err := p.g.results.forget(d.id); err != nil {
			p.g.log.Warn("MLOC: what an earlier attempt delivered cannot be removed", slog.Any("why", err))
		}
	}
	p.publish(ctx, d)
}

// republish publishes a task again that the worker did not begin: it did not listen yet, or the message was lost.
func (p *remoteWorker) republish(ctx context.Context, d *dispatch) {
	wait := p.g.intervals.redeliver << max(0, d.publishCount-1)
	if left := time.Until(d.publishedAt.Add(wait)); left > 0 {
		p.scheduleStep(left)
		return
	}
	if !p.refresh(ctx) || d.started || p.current != d || p.knows(d.id) {
		p.scheduleStep(p.g.intervals.sweep)
		return
	}
	if d.publishCount < maxDeliveries && p.alive {
		p.publish(ctx, d)
		return
	}
	p.unresponsive = true
	if w := p.worker.Load(); w != nil {
		w.Constrain("deaf", "it does not begin what it is given on the channel "+mloc.DefaultTopic)
	}
	p.finish(ctx, d, fleet.FinalReport{Outcome: muster.AttemptFailed, Reason: muster.Rejected, Message: "the worker " + p.id + " did not begin it, though it was published several times"})
	if err := p.g.control.HSet(ctx, mloc.WorkerKey(p.id), "status", mloc.StatusIdle).Err(); err != nil {
		p.g.log.Debug("MLOC: a worker stays RUNNING in Redis", slog.String("worker", p.id), slog.Any("why", err))
	}
}

// publish gives the task to the worker. Its hash says RUNNING before it can know of the task, so that what it writes itself comes later.
func (p *remoteWorker) publish(ctx context.Context, d *dispatch) {
	d.publishCount++
	d.publishedAt = time.Now()
	p.scheduleStep(p.g.intervals.redeliver)
	now := mloc.FormatTime(d.publishedAt)
	m := mloc.TaskMessage{TaskID: d.id, Task: d.doc, TaskType: mloc.TaskType(d.doc), AssignedWorker: p.id, DispatchedAt: now, MergedChildren: p.g.children(p.g.mergedIDs(d))}
	for i, c := range m.MergedChildren {
		m.MergedChildren[i].Spec = p.g.withDestination(c.Spec, d)
	}
	if err := p.g.control.HSet(ctx, mloc.WorkerKey(p.id), "status", mloc.StatusRunning, fieldTask, d.id).Err(); err != nil {
		return // Redis is unreachable: retry later
	}
	n, err := p.g.control.PublishJSON(ctx, mloc.DefaultTopic, m)
	if err != nil || n == 0 {
		if err == nil {
			p.g.log.Debug("MLOC: the channel of tasks has no subscribers", slog.String("task", d.id))
		}
		_ = p.g.control.HSet(ctx, mloc.WorkerKey(p.id), "status", mloc.StatusIdle).Err() // redeliver writes it again
		return
	}
	// As the host does it, for those who watch.
	_, _ = p.g.control.PublishJSON(ctx, mloc.TopicWorkers, struct {
		Type     string `json:"type"`
		WorkerID string `json:"worker_id"`
		Status   string `json:"status"`
		TS       string `json:"ts"`
	}{mloc.EventStatus, p.id, mloc.StatusRunning, now})
}

// clientTask returns the client's task that an attempt may be of: it is, once the job of the attempt is noted for it.
func (g *Gateway) clientTask(t *fleet.Task) (rec task, known bool) {
	if id, ok := strings.CutPrefix(t.Run().Group, stagePrefix); ok {
		return g.tasks.get(id)
	}
	return task{}, false
}

// wireID is the id by which workers know an attempt: that of the client's task which it is of, or its own.
func (g *Gateway) wireID(t *fleet.Task) string {
	if rec, known := g.clientTask(t); known && rec.Job == t.Run().Attempt.Task.Job {
		return rec.ID
	}
	return t.ID()
}

// prepare makes the message of a task. Its error is errNotYet, or says why a worker of MLOC cannot carry the task.
func (g *Gateway) prepare(p *remoteWorker, t *fleet.Task) (*dispatch, error) {
	d := &dispatch{worker: p, task: t, id: t.ID()}
	rec, known := g.clientTask(t)
	var err error
	switch {
	case known && rec.Job == 0:
		return nil, errNotYet // the job was accepted a moment ago
	case known && rec.Job == t.Run().Attempt.Task.Job:
		d.id, d.fromClient = rec.ID, true
		d.doc, err = g.tasks.doc(rec.ID, true)
	default:
		d.doc, err = toDocument(t.Run().Spec, t.ID())
	}
	if err != nil {
		return nil, err
	}
	d.doc.Spec = g.withDestination(d.doc.Spec, d)
	return d, nil
}

// withDestination returns the spec with this host as the destination of results. A destination of the user's that is another program, or a folder
// of the worker, stays as it is.
func (g *Gateway) withDestination(s mloc.Object, d *dispatch) mloc.Object {
	dest := mloc.Lookup(s, "output", "destination")
	if !isHostDestination(dest) {
		return s
	}
	headers := mloc.Object{}
	for k, v := range mloc.Lookup(dest, "headers") {
		if !strings.EqualFold(k, "Authorization") && !strings.EqualFold(k, headerTask) {
			headers[k] = v
		}
	}
	headers[headerTask] = d.task.ID()
	if g.requiresToken() {
		headers["Authorization"] = "Bearer " + d.task.ID()
	}
	to := mloc.Object{"type": "http", "url": g.url + resultsPath, "method": "POST", "headers": headers, "timeoutSec": cmp.Or[any](dest["timeoutSec"], 60)}
	s = mloc.Merge(s, mloc.Object{"output": mloc.Object{"destination": to}})
	if g.requiresToken() && d.fromClient {
		s = g.withGrants(s, d.id)
	}
	return s
}

// isHostDestination says whether results with this destination are for the host: there is none, or it is the host's own path.
func isHostDestination(dest mloc.Object) bool {
	switch kind := mloc.Text(dest["type"]); {
	case len(dest) == 0, kind == "":
		return true
	case kind == "http":
		return strings.HasSuffix(strings.TrimSuffix(mloc.Text(dest["url"]), "/"), resultsPath)
	default:
		return false
	}
}

// toDocument makes a document of a stage of a Muster job.
func toDocument(s *muster.TaskSpec, id string) (mloc.Document, error) {
	d := mloc.Document{APIVersion: "mloc/v1", Kind: "MusterTask", Metadata: mloc.Object{"name": id}}
	var input any
	if len(s.Input) > 0 {
		if err := mloc.Decode(s.Input, mloc.MaxMessage, &input); err != nil {
			return d, err
		}
	}
	in, _ := input.(mloc.Object)
	var err error
	switch s.Kind {
	case "echo":
		d.Spec = mloc.Object{"taskType": "echo", "input": input}
	case mloc.KindForeign:
		if mloc.Text(in["system"]) != mloc.SystemName {
			return d, mloc.InvalidSpec("the task is for workers of %s, and this is one of MLOC", mloc.Truncate(mloc.Text(in["system"]), muster.MaxNameSize))
		}
		config := mloc.Lookup(in, "config")
		d.Spec = config
		if inner := mloc.Lookup(config, "spec"); inner != nil {
			d.Spec = inner
			d.Kind = cmp.Or(mloc.Text(config["kind"]), d.Kind)
			if m := mloc.Lookup(config, "metadata"); m != nil {
				d.Metadata = m
			}
		}
		d.Spec = mloc.Merge(d.Spec, mloc.Object{"taskType": cmp.Or(mloc.Text(d.Spec["taskType"]), mloc.Text(in["type"]))})
	case "inference":
		d.Spec, err = inferenceSpec(in)
	case "sft", "lora_sft", "ppo", "dpo":
		d.Spec, err = trainingSpec(s.Kind, in)
	default:
		err = mloc.InvalidSpec("workers of MLOC have nothing like kind %s", s.Kind)
	}
	return d, err
}

func inferenceSpec(in mloc.Object) (mloc.Object, error) {
	if err := checkInput("inference", in, "model", "revision", "task", "input", "inputs", "system", "max_new_tokens", "temperature", "top_p", "top_k",
		"repetition_penalty", "stop", "dtype", "device_map", "trust_remote_code", "engine", "tensor_parallel_size", "batch_size", "auto_batch", "device"); err != nil {
		return nil, err
	}
	if t := cmp.Or(mloc.Text(in["task"]), "text-generation"); t != "text-generation" {
		return nil, mloc.InvalidSpec("workers of MLOC generate texts, and have no %s", t)
	}
	items, _ := in["inputs"].([]any)
	if in["input"] != nil {
		items = []any{in["input"]}
	}
	if !mloc.AllTexts(items) {
		return nil, mloc.InvalidSpec("workers of MLOC take items that are texts")
	}
	source, options := mloc.Object{}, mloc.Object{}
	sampling := mloc.Object{"max_tokens": json.Number("128"), "temperature": json.Number("0")}
	mloc.CopyFields(source, in, "model", "identifier", "revision", "revision")
	mloc.CopyFields(options, in, "dtype", "dtype", "trust_remote_code", "trust_remote_code")
	mloc.CopyFields(sampling, in, "max_new_tokens", "max_tokens", "temperature", "temperature", "top_p", "top_p", "top_k", "top_k", "repetition_penalty", "repetition_penalty", "stop", "stop", "system", "system_prompt")
	if mloc.IsEmpty(sampling["temperature"]) {
		sampling["do_sample"] = false
	}
	model := mloc.Object{"source": source}
	if mloc.Text(in["engine"]) == "vllm" {
		mloc.CopyFields(options, in, "tensor_parallel_size", "tensor_parallel_size")
		model["vllm"] = options
	} else {
		mloc.CopyFields(options, in, "device_map", "device_map")
		model["transformers"] = options
	}
	s := mloc.Object{"taskType": "inference", "model": model, "data": mloc.Object{"type": "list", "items": items}, "inference": sampling}
	if mloc.Text(in["device"]) == "cpu" {
		s["enforce_cpu"] = true
	}
	return s, nil
}

// trainingSpec maps the inputs of sft, lora_sft, ppo and dpo, which have the names that MLOC gives them, and more.
func trainingSpec(kind string, in mloc.Object) (mloc.Object, error) {
	if err := checkInput(kind, in, "model", "base_model", "baseModel", "data", "dataset", "training", "lora", "ppo", "dpo", "checkpoint", "epochs", "max_steps",
		"batch_size", "learning_rate", "seed"); err != nil {
		return nil, err
	}
	s := mloc.Object{"taskType": kind}
	for _, name := range []string{"model", "base_model", "baseModel"} {
		switch m := in[name].(type) {
		case string:
			s["model"] = mloc.Object{"source": mloc.Object{"type": "huggingface", "identifier": m}}
		case mloc.Object:
			s["model"] = m
			if id := mloc.Text(m["identifier"]); id != "" {
				source := mloc.Object{"type": "huggingface", "identifier": id}
				mloc.CopyFields(source, m, "revision", "revision")
				s["model"] = mloc.Object{"source": source}
			}
		}
	}
	for _, name := range []string{"dataset", "data"} {
		switch data := in[name].(type) {
		case mloc.Object:
			s["data"] = data
		case string:
			if !strings.HasPrefix(data, "http://") && !strings.HasPrefix(data, "https://") {
				s["data"] = mloc.Object{"dataset_name": data}
				continue
			}
			s["data"] = mloc.Object{"jsonl": mloc.Object{"url": data}}
		case []any:
			return nil, mloc.InvalidSpec("workers of MLOC take data from a data set or an address, and no rows")
		}
	}
	training := mloc.Merge(mloc.Lookup(in, "training"), nil)
	mloc.CopyFields(training, in, "epochs", "epochs", "max_steps", "max_steps", "batch_size", "batch_size", "learning_rate", "learning_rate", "seed", "seed")
	mloc.CopyFields(training, mloc.Merge(training, nil), "epochs", "num_train_epochs")
	if len(training) > 0 {
		s["training"] = training
	}
	mloc.CopyFields(s, in, "lora", "lora", "ppo", "ppo", "dpo", "dpo", "checkpoint", "checkpoint")
	return s, nil
}

// checkInput fails if an input has fields that workers of MLOC do not have.
func checkInput(kind string, in mloc.Object, fields ...string) error {
	if err := mloc.CheckFields(in, "input", fields...); err != nil {
		return mloc.InvalidSpec("workers of MLOC cannot carry it: %s", strings.Replace(err.Error(), "Muster's workers", "their "+kind, 1))
	}
	return nil
}

// failureReport is the end of a task that a worker says it could not do.
func failureReport(message string) fleet.FinalReport {
	end := fleet.FinalReport{Outcome: muster.AttemptFailed, Reason: muster.ExitCode, Message: mloc.Truncate(message, 4000)}
	low := strings.ToLower(message)
	switch {
	case strings.HasPrefix(message, "HTTP delivery"), strings.Contains(low, "upload"):
		end.Reason = muster.UploadFailed
	case strings.Contains(low, "out of memory"):
		end.Reason = muster.OutOfMemory
	case strings.Contains(low, "no module named"), strings.Contains(low, "not installed"):
		end.Reason = muster.Dependency
	case strings.Contains(low, "is required"), strings.Contains(low, "valueerror"), strings.Contains(low, "invalid"):
		end.Reason = muster.BadInput
	}
	return end
}

// successReport is the end of a task that a worker says it has done: with the result that it posted, if it posted one.
func (g *Gateway) successReport(ctx context.Context, d *dispatch, e *mloc.TaskEvent) fleet.FinalReport {
	end := fleet.FinalReport{Outcome: muster.AttemptSucceeded}
	if n, err := json.Number(mloc.NumberText(e.Payload["runtime_sec"])).Float64(); err == nil && n >= 0 && n < 1e9 {
		end.Usage = &muster.Usage{WallSeconds: n}
	}
	if !g.isDelivered(d) {
		if len(e.Payload) > 0 {
			end.Result, _ = mloc.Encode(mloc.Object{"ok": true, "delivered": "elsewhere", "event": e.Payload}) // it was JSON
		}
		return end
	}
	w, err := g.results.get(d.id)
	if err != nil {
		return fleet.FinalReport{Outcome: muster.AttemptFailed, Reason: muster.ResultInvalid, Message: err.Error()}
	}
	result := mloc.Lookup(w, "result")
	if simulated, _ := result["simulated"].(bool); simulated {
		return fleet.FinalReport{Outcome: muster.AttemptFailed, Reason: muster.Dependency, Message: "the worker simulated its result, which does not count"}
	}
	if ok, exists := result["training_successful"].(bool); exists && !ok {
		return failureReport(cmp.Or(mloc.Text(result["error_message"]), "the worker reported that the training was not successful"))
	}
	encoded, err := mloc.Encode(result)
	if err == nil {
		err = d.task.AddArtifact(ctx, mloc.FileResponses, bytes.NewReader(encoded), mloc.MaxResult)
	}
	for _, name := range g.results.files(d.id) {
		if err == nil && name != mloc.FileResponses {
			err = g.attachFile(ctx, d, name)
		}
	}
	if err == nil {
		err = g.results.manifest(ctx, d.id, d.doc.Spec)
	}
	if err != nil {
		return fleet.FinalReport{Outcome: muster.AttemptFailed, Reason: muster.UploadFailed, Message: mloc.Truncate("what the worker delivered cannot be stored: "+err.Error(), 1000)}
	}
	end.Result = encoded
	if !d.fromClient {
		end.Result, err = mloc.Encode(toMusterResult(d.task.Run().Spec.Kind, result))
	}
	if err != nil || len(end.Result) > muster.MaxResultSize {
		end.Result = json.RawMessage(`{"complete":false,"file":"` + mloc.FileResponses + `"}`)
	}
	return end
}

func (g *Gateway) attachFile(ctx context.Context, d *dispatch, name string) error {
	f, err := g.results.open(d.id, name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return d.task.AddArtifact(ctx, name, f, mloc.MaxFile)
}

// toMusterResult is what a result of MLOC is as that of a kind of Muster.
func toMusterResult(kind string, result mloc.Object) any {
	switch kind {
	case "echo":
		if echo := mloc.Lookup(result, "echo"); echo != nil {
			return echo["input"]
		}
	case "inference":
		items, _ := result["items"].([]any)
		predictions := make([]any, len(items))
		for i, item := range items {
			one, _ := item.(mloc.Object)
			predictions[i] = mloc.Object{"prediction": one["output"]}
			if one["error"] != nil {
				predictions[i] = mloc.Object{"error": one["error"]}
			}
		}
		usage := mloc.Lookup(result, "usage")
		out := mloc.Object{"jobType": kind, "status": "success", "predictions": predictions, "complete": true, "model": result["model"]}
		mloc.CopyFields(out, usage, "prompt_tokens", "tokens_in", "completion_tokens", "tokens_out", "latency_sec", "seconds")
		return out
	case "sft", "lora_sft", "ppo", "dpo":
		out := mloc.Merge(mloc.Object{"jobType": kind, "status": "success"}, result)
		mloc.CopyFields(out, result, "model_name", "model", "training_time_seconds", "seconds")
		maps.DeleteFunc(out, func(name string, _ any) bool { // files are artifacts of the task
			return strings.HasSuffix(name, "_archive_url") || strings.HasSuffix(name, "_path") || strings.HasSuffix(name, "_dir")
		})
		return out
	}
	return result
}
