package spec_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/spec"
)

// stagesJSON returns a job of n stages. Each needs the five before it.
func stagesJSON(n int) string {
	var b strings.Builder
	for i := range n {
		needs := make([]string, min(i, 5))
		for k := range needs {
			needs[k] = fmt.Sprintf(`"s%x"`, i-k-1)
		}
		fmt.Fprintf(&b, `,{"name":"s%x","kind":"noop","needs":[%s]}`, i, strings.Join(needs, ","))
	}
	return `{"tasks":[` + b.String()[1:] + "]}"
}

// stagesLike returns a job of as many stages as are allowed.
func stagesLike(format string) string {
	return `{"tasks":[` + repeatNumbered(muster.MaxStages-1, format+",") + fmt.Sprintf(format, muster.MaxStages-1) + "]}"
}

func TestJobOfTheMaximumOfStages(t *testing.T) {
	specs, err := spec.Parse([]byte(stagesJSON(muster.MaxStages)), "job.json")
	if err != nil || len(specs[0].Tasks) != muster.MaxStages || len(specs[0].Tasks[9_999].Needs) != 5 {
		t.Fatal(err)
	}
	_, err = spec.Parse([]byte(stagesLike(`{"kind":"noop","name":"s%d"}`)[:10]+`{"kind":"noop"},`+stagesLike(`{"kind":"noop","name":"s%d"}`)[10:]), "job.json")
	if err == nil || !strings.Contains(err.Error(), "10001 stages are too many, the maximum is 10000") {
		t.Errorf("one stage more: %v", err)
	}
}

// BenchmarkStages measures what one stage costs when a job is submitted: decoding, all checks, and everything that is 5 needs of it.
func BenchmarkStages(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		data := []byte(stagesJSON(n))
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				if _, err := spec.Parse(data, "job.json"); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n)/1e3, "µs/stage")
		})
	}
}
