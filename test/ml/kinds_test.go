//go:build unix

package ml

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/kind"
	"github.com/muster-dev/muster/internal/spec"
)

// TestEveryKind runs each kind that is a Python program with verifiable results: alone, with the output of an earlier stage, and with its own
// earlier output.
func TestEveryKind(t *testing.T) {
	w := newFullEnv(t)
	files := w.uploadMaterials()
	unused := filepath.Join(w.Data, "cache", "models", run.ProjectFolder(muster.DefaultProject), "hf", "hub")
	for name, size := range map[string]int{"models--org--kept/blobs/a": 10, "models--org--old/blobs/b": 5000, "../../mine/config.json": 20} {
		writeFile(t, unused, name, strings.Repeat("x", size))
	}
	text, err := os.ReadFile("testdata/kinds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	specs, err := spec.Parse(text, "kinds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var jobs []muster.JobID
	done := map[string]bool{}
	for _, s := range specs {
		for i := range s.Tasks {
			s.Tasks[i].Files = files
			s.Tasks[i].Env = map[string]string{"OMP_NUM_THREADS": "1"} // several tasks at once would only wait for each other's threads
			done[s.Tasks[i].Kind] = true
		}
		jobs = append(jobs, w.Submit(s).ID)
	}
	for _, k := range pythonKinds() {
		if !done[k] {
			t.Errorf("kind %s is not tried", k)
		}
	}
	for _, job := range jobs {
		for _, e := range w.waitTasks(job) {
			t.Run(e.Name, func(t *testing.T) {
				at := *w
				at.t, e.env = t, &at
				check := stageChecks[e.Name]
				if check == nil {
					t.Fatal("its files are not checked")
				}
				e.requireSucceeded(nil)
				e.checkArtifactURLs()
				check(e)
				if t.Failed() {
					t.Logf("the result is %s\n%s", e.Result, e.log())
				}
			})
		}
	}
}

// checkArtifactURLs checks that each URL in the result is that of an artifact.
func (e *finishedTask) checkArtifactURLs() {
	e.env.t.Helper()
	for _, m := range regexp.MustCompile(`ipfs://([^"]*)`).FindAllSubmatch(e.Result, -1) {
		if !slices.ContainsFunc(e.Files, func(a muster.Artifact) bool { return a.CID == string(m[1]) }) {
			e.env.t.Errorf("%s is not an artifact", m[0])
		}
	}
}

// stageChecks verify the results of the stages of kinds.yaml.
var stageChecks = map[string]func(e *finishedTask){
	"convert": func(e *finishedTask) {
		var r struct {
			Rows    int
			Columns []struct{ Name, Type string }
		}
		e.requireSucceeded(&r)
		if want := "[{id string} {length double} {place string} {kind string}]"; r.Rows != 120 || fmt.Sprint(r.Columns) != want {
			e.env.t.Errorf("%d rows of %v", r.Rows, r.Columns)
		}
		if b := e.file("plants.parquet"); !bytes.HasPrefix(b, []byte("PAR1")) || !bytes.HasSuffix(b, []byte("PAR1")) {
			e.env.t.Error("the artifact is no Parquet")
		}
	},
	"profile": func(e *finishedTask) {
		var r struct {
			Rows    int
			Columns []struct {
				Name      string
				Distinct  int
				Mean, Max float64
			}
		}
		e.requireSucceeded(&r)
		total, most := 0.0, 0.0
		for i := range 120 {
			v := float64(1+10*(i%2)) + float64(i%7)/10
			total, most = total+v, max(most, v)
		}
		if len(r.Columns) != 4 || r.Columns[2].Distinct != 3 || math.Abs(r.Columns[1].Mean-total/120) > 1e-9 || r.Columns[1].Max != most {
			e.env.t.Errorf("the mean is not %v, or the greatest not %v", total/120, most)
		}
		if !bytes.Contains(e.file("report.md"), []byte("| length |")) {
			e.env.t.Error("the report has no length")
		}
	},
	"training": func(e *finishedTask) {
		var r trained
		e.requireSucceeded(&r)
		if r.FinalMetrics.FinalAccuracy < 0.95 || r.ComputationData.Epoch != 8 || r.ComputationData.Loss > 0.2 {
			e.env.t.Error("the loss did not decrease")
		}
		e.file("model.pt")
		e.readPNG("curves.png")
	},
	"boosting": func(e *finishedTask) {
		var r struct {
			FinalMetrics struct{ FinalR2, FinalMae float64 }
		}
		e.requireSucceeded(&r)
		if r.FinalMetrics.FinalR2 < 0.9 || r.FinalMetrics.FinalMae <= 0 || r.FinalMetrics.FinalMae > 1 {
			e.env.t.Error("the loss did not decrease")
		}
		e.file("model.joblib")
	},
	"digits": func(e *finishedTask) {
		var r struct {
			FinalAccuracy float64
			Epochs        []struct{ ValLoss float64 }
		}
		e.requireSucceeded(&r)
		if r.FinalAccuracy < 0.9 || len(r.Epochs) != 2 || r.Epochs[1].ValLoss >= r.Epochs[0].ValLoss {
			e.env.t.Error("the loss did not decrease")
		}
		e.file("model.pt")
	},
	"embedding": func(e *finishedTask) {
		var r struct{ Dimensions, Failed int }
		e.requireSucceeded(&r)
		data := e.file("embeddings.npy")
		size := 3 * r.Dimensions * 4
		if !bytes.HasPrefix(data, []byte("\x93NUMPY")) || len(data) <= size {
			e.env.t.Fatalf("the artifact has %d bytes", len(data))
		}
		vectors := make([]float32, 3*r.Dimensions)
		if err := binary.Read(bytes.NewReader(data[len(data)-size:]), binary.LittleEndian, vectors); err != nil {
			e.env.t.Fatal(err)
		}
		for row := range 3 {
			norm := 0.0
			for _, v := range vectors[row*r.Dimensions : (row+1)*r.Dimensions] {
				norm += float64(v) * float64(v)
			}
			if empty := row == 1; empty != math.IsNaN(norm) || !empty && math.Abs(norm-1) > 1e-5 {
				e.env.t.Errorf("vector %d has the length %v", row, math.Sqrt(norm))
			}
		}
		if r.Failed != 1 {
			e.env.t.Errorf("%d texts have no vector", r.Failed)
		}
	},
	"passages": func(e *finishedTask) {
		var r struct{ Passages, Indexed int }
		e.requireSucceeded(&r)
		if r.Passages != 3 || r.Indexed != 3 {
			e.env.t.Errorf("%d passages", r.Passages)
		}
	},
	"answer": func(e *finishedTask) {
		var r struct {
			Answers []struct {
				Answer   *string
				Sources  []string
				Passages []struct {
					Source, Text string
					Score        float64
				}
			}
			Generation struct {
				TokensOut int `json:"tokens_out"`
			}
		}
		e.requireSucceeded(&r)
		if len(r.Answers) != 1 || len(r.Answers[0].Passages) != 2 {
			e.env.t.Fatal("it has not one answer of two passages")
		}
		a := r.Answers[0]
		best := a.Passages[0]
		if best.Source != "france.md" || math.Abs(best.Score-1) > 1e-4 || a.Passages[1].Score >= best.Score {
			e.env.t.Errorf("the best passage is %+v", best) // the question is its text
		}
		if a.Answer == nil || !slices.Contains(a.Sources, best.Source) || r.Generation.TokensOut < 1 || r.Generation.TokensOut > 4 {
			e.env.t.Errorf("the answer is %+v", a)
		}
	},
	"sft": func(e *finishedTask) {
		var r tuned
		e.requireSucceeded(&r)
		r.check(e.env.t, "success", 40)
		if r.FinalMetrics.FinalLoss > 0.1 || r.Trainable != r.Parameters {
			e.env.t.Error("the loss did not decrease")
		}
		if names := archiveNames(e.env.t, e.file("final_model.tar.gz")); !slices.Contains(names, "final_model/model.safetensors") {
			e.env.t.Errorf("the archive has %q", names)
		}
	},
	"write": func(e *finishedTask) {
		if got := e.predictions(); !slices.Equal(got, []string{" fell", " fly"}) {
			e.env.t.Errorf("it wrote %q", got)
		}
	},
	"lora_sft": func(e *finishedTask) {
		var r tuned
		e.requireSucceeded(&r)
		r.check(e.env.t, "success", 15)
		if r.FinalMetrics.FinalLoss > 1 || r.Trainable == 0 || r.Trainable >= r.Parameters/2 {
			e.env.t.Error("no adapter was trained")
		}
		if names := archiveNames(e.env.t, e.file("final_lora.tar.gz")); !slices.Contains(names, "final_lora/adapter_model.safetensors") {
			e.env.t.Errorf("the archive has %q", names)
		}
	},
	"dpo": func(e *finishedTask) {
		var r tuned
		e.requireSucceeded(&r)
		r.check(e.env.t, "success", 8)
		steps := e.stepMetrics()
		last := steps[len(steps)-1]
		if math.Abs(steps[0]["margin"]) > 1e-3 || last["margin"] < 0.5 || last["preferred"] != 1 || r.FinalMetrics.FinalMargin != last["margin"] {
			e.env.t.Errorf("the steps are %v", steps)
		}
		archiveNames(e.env.t, e.file("final_lora.tar.gz"))
	},
	"ppo": func(e *finishedTask) {
		var r tuned
		e.requireSucceeded(&r)
		r.check(e.env.t, "success", 3)
		steps := e.stepMetrics()
		if math.Abs(steps[0]["kl"]) > 1e-3 || steps[0]["entropy"] <= 0 || steps[0]["answer_tokens"] < 1 || steps[0]["answer_tokens"] > 6 {
			e.env.t.Errorf("the steps are %v", steps)
		}
		for _, s := range steps {
			if s["reward"] <= 0 { // each answer has some length
				e.env.t.Errorf("a step is %v", s)
			}
		}
		archiveNames(e.env.t, e.file("final_model.tar.gz"))
	},
	"fine_tuning": func(e *finishedTask) {
		var r tuned
		e.requireSucceeded(&r)
		r.check(e.env.t, "success", 30)
		if !slices.Equal(r.Labels, []string{"down", "up"}) || r.ComputationData.ValidationAccuracy < 0.9 {
			e.env.t.Error("it does not tell the labels apart")
		}
		archiveNames(e.env.t, e.file("checkpoint.tar.gz"))
	},
	"classify": func(e *finishedTask) {
		if got := e.predictions(); !slices.Equal(got, []string{"up", "down"}) {
			e.env.t.Errorf("they are %q", got)
		}
	},
	"stable_diffusion": func(e *finishedTask) {
		var r struct {
			Count, Flagged int
			Safety         string
			Images         []struct {
				Prompt string
				Seed   int
			}
		}
		e.requireSucceeded(&r)
		if want := "[{a cat 7} {a dog 8}]"; r.Count != 2 || r.Flagged != 0 || r.Safety != "on" || fmt.Sprint(r.Images) != want {
			e.env.t.Errorf("the images are %v", r.Images)
		}
		first, second := e.readPNG("image-0001.png"), e.readPNG("image-0002.png")
		if bytes.Equal(first, second) || !bytes.Contains(first, []byte("a cat")) {
			e.env.t.Error("the images are the same, or do not say what they are")
		}
	},
	"benchmark": func(e *finishedTask) {
		var r struct {
			Runs []struct {
				BatchSize  int `json:"batch_size"`
				Iterations int
				Throughput float64
				LatencyMS  struct{ Mean, Min, Max float64 } `json:"latency_ms"`
			}
		}
		e.requireSucceeded(&r)
		if len(r.Runs) != 2 {
			e.env.t.Fatal("it has not two runs")
		}
		for _, run := range r.Runs {
			ms := run.LatencyMS
			if run.Iterations != 4 || ms.Min <= 0 || ms.Mean < ms.Min || ms.Mean > ms.Max || run.Throughput <= 0 {
				e.env.t.Errorf("a run is %+v", run)
			}
		}
	},
	"custom": func(e *finishedTask) {
		var r struct {
			Done []struct {
				Removed []string
				Freed   int
			}
		}
		e.requireSucceeded(&r)
		if len(r.Done) != 1 || fmt.Sprint(r.Done[0].Removed) != "[models--org--old]" || r.Done[0].Freed < 5000 {
			e.env.t.Errorf("it did %+v", r.Done)
		}
	},
}

// trained is what results say of what was learned, and tuned when that is a language model.
type (
	trained struct {
		FinalMetrics    struct{ FinalLoss, FinalAccuracy, FinalMargin float64 }
		ComputationData struct {
			Epoch              float64
			Loss               float64
			ValidationAccuracy float64 `json:"validation_accuracy"`
		}
	}
	tuned struct {
		trained

		Status     string
		Steps      int
		Trainable  int64 `json:"trainable_parameters"`
		Parameters int64
		Labels     []string
	}
)

func (r *tuned) check(tb testing.TB, status string, steps int) {
	tb.Helper()
	if r.Status != status || r.Steps != steps {
		tb.Errorf("it is %q after %d steps", r.Status, r.Steps)
	}
}

// stepMetrics are the figures that a training noted.
func (e *finishedTask) stepMetrics() []map[string]float64 {
	e.env.t.Helper()
	var m struct {
		Steps []map[string]float64 `json:"steps"`
	}
	if err := json.Unmarshal(e.file("metrics.json"), &m); err != nil {
		e.env.t.Fatal(err)
	}
	if len(m.Steps) == 0 {
		e.env.t.Fatal("metrics.json has no steps")
	}
	return m.Steps
}

// predictions are those of the kind inference.
func (e *finishedTask) predictions() (all []string) {
	e.env.t.Helper()
	var r struct{ Predictions []struct{ Prediction string } }
	e.requireSucceeded(&r)
	for _, p := range r.Predictions {
		all = append(all, p.Prediction)
	}
	return all
}

// readPNG reads an artifact that is a picture.
func (e *finishedTask) readPNG(name string) []byte {
	e.env.t.Helper()
	data := e.file(name)
	if _, err := png.Decode(bytes.NewReader(data)); err != nil {
		e.env.t.Errorf("%s: %v", name, err)
	}
	return data
}

// pythonKinds are the kinds of the catalog that are programs in Python.
func pythonKinds() (names []string) {
	for _, k := range kind.Embedded() {
		if k.Entry[0] == kind.EntryPython {
			names = append(names, k.Name)
		}
	}
	return names
}

// uploadMaterials uploads small models, and data whose regularities are plain.
func (w *env) uploadMaterials() (files string) {
	w.t.Helper()
	dir := w.t.TempDir()
	runScript(w.t, "diffusers", "testdata/models.py", dir)
	var plants, opinions strings.Builder
	plants.WriteString("id;len;place;kind\n")
	for i := range 120 {
		name := []string{"moss", "fern"}[i%2]
		fmt.Fprintf(&plants, "p%d;%d.%d;%s;%s\n", i, 1+10*(i%2), i%7, []string{"rock", "wood", "bog"}[i%3], name)
	}
	for _, thing := range []string{"cat", "mat", "dog", "fox", "sun", "task", "worker", "east"} {
		for i, word := range []string{"quick", "lazy", "brown", "capital"} {
			fmt.Fprintf(&opinions, `{"text": "the %s %s", "label": %q}`+"\n", word, thing, []string{"up", "down"}[i%2])
		}
	}
	fact := `{"prompt": %q, "completion": %q}` + "\n"
	pair := `{"prompt": %q, "chosen": " sat on a mat", "rejected": " fly over old hills"}` + "\n"
	for name, text := range map[string]string{
		"plants.csv":     plants.String(),
		"opinions.jsonl": opinions.String(),
		"asked.txt":      "the quick east\nthe lazy fox\n",
		"docs/france.md": "paris is the capital of france",
		"docs/cats.txt":  "the cat sat on the mat and looked at the dog",
		"docs/sun.txt":   "the sun rises in the east and sets in the west",
		"facts.jsonl":    fmt.Sprintf(strings.Repeat(fact, 4), "red cat", " sat", "old birds", " fly", "blue water", " fell", "green hills", " rain"),
		"pairs.jsonl":    fmt.Sprintf(strings.Repeat(pair, 4), "red cat", "old birds", "blue water", "green hills"),
		"judge.py":       "def worth(prompts, texts, rows):\n    return [float(len(t)) for t in texts]\n",
	} {
		writeFile(w.t, dir, name, text)
	}
	files, err := w.Client.UploadFolder(w.t.Context(), dir, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return files
}

func writeFile(tb testing.TB, dir, name, text string) {
	tb.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
}
