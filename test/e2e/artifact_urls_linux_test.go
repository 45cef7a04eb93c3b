package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// read reads a URL without a key.
func read(t *testing.T, url string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestArtifactsByURL checks that stages download what others made by URL: a program, one behind an allowlist, and a kind, all of them from a
// server with a private address; also by the URLs in a result and of all elements of an array. A URL works from outside, and one of a
// file that does not exist fails its stage with a message.
func TestArtifactsByURL(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("wget"); err != nil {
		t.Skip("wget is not installed")
	}
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("rig", t.TempDir())
	shell := func(text string) *muster.Command { return &muster.Command{Shell: text} }
	makes := muster.TaskSpec{
		Name: "train", Run: shell(`mkdir $MUSTER_OUT/a; echo weights $MUSTER_INDEX > "$MUSTER_OUT/a/my model.pt"
			echo '{"final_model_archive_url": "artifact://{a/my model.pt}"}' > $MUSTER_OUT/result.json`), Array: &muster.Array{Ranges: []muster.Range{{First: 4, Last: 5, Step: 1}}},
	}
	loads := muster.TaskSpec{
		Name: "load", Needs: []string{"train"}, Network: muster.NetworkHost,
		Env: map[string]string{"ALL": `${train.*.artifact("a/my model.pt").url}`, "ONE": `${train.4.result.final_model_archive_url}`},
		Run: shell(`wget -qO- "$ONE" && for u in $(echo "$ALL" | tr -d '[]"' | tr , ' '); do wget -qO- "$u"; done; echo "{\"url\": \"$ONE\"}" > $MUSTER_OUT/result.json`),
	}
	calls := muster.TaskSpec{Name: "call", Kind: "api", Needs: []string{"train"}, Input: json.RawMessage(`{"url": "${train.5.result.final_model_archive_url}", "retries": 0}`)}
	fails := muster.TaskSpec{Name: "fail", Needs: []string{"train"}, Run: shell(`echo ${train.4.artifact("other.pt").url}`)}
	stages := []muster.TaskSpec{makes, loads, calls, fails}
	if os.Geteuid() == 0 {
		listed := loads
		listed.Name, listed.Network, listed.AllowHosts = "listed", muster.NetworkAllowlist, []string{"pypi.org"}
		stages = append(stages, listed)
	}
	job := c.Submit(&muster.Spec{Tasks: stages})
	c.Wait(job.ID, 2*time.Minute)
	var url string
	for _, task := range c.Tasks(job.ID) {
		switch output := c.Output(task.ID); task.Name {
		case "train":
			var result struct {
				URL string `json:"final_model_archive_url"`
			}
			want := c.URL + "/api/v1/tasks/" + task.ID.String() + "/artifacts/a/my%20model.pt"
			if err := json.Unmarshal(task.Result, &result); err != nil || result.URL != want {
				t.Errorf("the result is %s, want %s: %s", task.Result, want, task.Message)
			}
			if status, _ := read(t, result.URL); status != http.StatusUnauthorized {
				t.Errorf("the URL in the result, without a key: %d", status)
			}
		case "load", "listed":
			if want := "weights 4\nweights 4\nweights 5\n"; output != want {
				t.Errorf("%s read %q, want %q: %s", task.Name, output, want, task.Message)
			}
			var result struct{ URL string }
			if err := json.Unmarshal(task.Result, &result); err != nil {
				t.Fatal(err)
			}
			url = result.URL
		case "call":
			if task.State != muster.Succeeded {
				t.Errorf("the kind %s: %s: %s", task.State, task.Message, output)
			}
		case "fail":
			if task.State != muster.Failed || task.Reason != muster.BadReference || !strings.Contains(task.Message, `has no artifact "other.pt": it has a/my model.pt`) {
				t.Errorf("it is %s (%s): %s", task.State, task.Reason, task.Message)
			}
		}
	}
	if status, body := read(t, url); status != http.StatusOK || body != "weights 4\n" {
		t.Errorf("%s from outside: %d %s", url, status, body)
	}
	if status, _ := read(t, strings.Replace(url, ".0/", ".1/", 1)); status != http.StatusForbidden {
		t.Errorf("the signature for another task: %d", status)
	}
	if err := c.Client.RemoveJob(t.Context(), job.ID); err != nil {
		t.Fatal(err)
	}
	if status, _ := read(t, url); status != http.StatusNotFound {
		t.Errorf("after the removal: %d", status)
	}
}

// TestContainersReadArtifactsByURL checks the same in a container.
func TestContainersReadArtifactsByURL(t *testing.T) {
	t.Parallel()
	b := newContainerEnv(t, containertest.SharedEngine(t))
	b.start("--allow-host-network")
	reads := b.shellSpec("read", `wget -qO- "$URL"`).Tasks[0]
	reads.Name, reads.Needs, reads.Network, reads.Env = "read", []string{"write"}, muster.NetworkHost, map[string]string{"URL": `${write.artifact("m.pt").url}`}
	job := b.Submit(&muster.Spec{Tasks: []muster.TaskSpec{{Name: "write", Run: &muster.Command{Shell: "echo weights > $MUSTER_OUT/m.pt"}}, reads}})
	b.Wait(job.ID, 2*time.Minute)
	task := b.Tasks(job.ID)[1]
	if got := b.Output(task.ID); got != "weights\n" {
		t.Errorf("it read %q: %s %s", got, task.State, task.Message)
	}
}
