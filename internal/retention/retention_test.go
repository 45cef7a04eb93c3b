package retention_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/retention"
)

const day = muster.Duration(24 * time.Hour)

func TestParseLimit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]retention.Limit{
		"forever":          {},
		"30d":              {Age: 30 * day},
		"1000":             {Number: 1000},
		"50GiB":            {Bytes: 50 << 30},
		"1.5h":             {Age: muster.Duration(90 * time.Minute)},
		"7d,1000,50GiB":    {Age: 7 * day, Number: 1000, Bytes: 50 << 30},
		" 10GB , 2h30m, 7": {Age: muster.Duration(150 * time.Minute), Number: 7, Bytes: 10e9},
	} {
		if got, err := retention.ParseLimit(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "0", "0d", "0B", "-1", "-3d", "7x", "d", "forever,7d", "7d,8d", "1,2", "1KB,1MB", "7d,", ",", "1e400", "1e3", "+5", "NaNB", "Inf", "99999999999999999999", "1.5", "200y", "40000d", "1 000",
	} {
		if got, err := retention.ParseLimit(text); muster.CodeOf(err) != muster.Invalid || err == nil {
			t.Errorf("%q was read as %v, %v", text, got, err)
		}
	}
}

func anyLimit(t *rapid.T) retention.Limit {
	return retention.Limit{
		Age:    muster.Duration(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, int64(100*365*day)), rapid.Map(rapid.Int64Range(0, 400), func(n int64) int64 { return n * int64(time.Hour) })).Draw(t, "age")),
		Number: rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Min(0)).Draw(t, "number"),
		Bytes:  muster.Size(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 1<<52), rapid.Map(rapid.Int64Range(0, 100), func(n int64) int64 { return n << 30 })).Draw(t, "bytes")),
	}
}

func TestLimitRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := anyLimit(t)
		b, err := json.Marshal(retention.Policy{Jobs: &want})
		if err != nil {
			t.Fatal(err)
		}
		var got retention.Policy
		if err := json.Unmarshal(b, &got); err != nil || got.Jobs == nil || *got.Jobs != want || got.Logs != nil {
			t.Fatalf("%+v was written as %s and read as %+v, %v", want, b, got.Jobs, err)
		}
	})
}

func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{"forever", "30d", "7d,1000,50GiB", "1h30m", "0.1d", "5", "1.5KiB", "9223372036854775807", "1e5s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := retention.ParseLimit(s)
		if err != nil {
			if l != (retention.Limit{}) {
				t.Fatalf("%q is an error and has the limit %v", s, l)
			}
			return
		}
		if l.Age < 0 || l.Number < 0 || l.Bytes < 0 {
			t.Fatalf("%q was read as %+v", s, l)
		}
		if again, err := retention.ParseLimit(l.String()); err != nil || again != l {
			t.Fatalf("%q was read as %+v, written as %q and read as %+v, %v", s, l, l, again, err)
		}
	})
}

const now = muster.Time(1_800_000_000_000)

func anyEntries(t *rapid.T) []retention.Entry {
	entry := rapid.Custom(func(t *rapid.T) retention.Entry {
		return retention.Entry{
			Ended: now.Add(-muster.Duration(rapid.IntRange(-1, 10).Draw(t, "days")) * day),
			Bytes: muster.Size(rapid.IntRange(0, 5).Draw(t, "bytes")),
			Kept:  rapid.Bool().Draw(t, "kept"),
		}
	})
	list := rapid.SliceOfN(entry, 0, 30).Draw(t, "entries")
	slices.SortStableFunc(list, func(a, b retention.Entry) int { return int(a.Ended - b.Ended) })
	return list
}

func smallLimit(t *rapid.T, name string) retention.Limit {
	return retention.Limit{
		Age:    muster.Duration(rapid.IntRange(0, 11).Draw(t, name+" days")) * day,
		Number: int64(rapid.IntRange(0, 12).Draw(t, name+" number")),
		Bytes:  muster.Size(rapid.IntRange(0, 30).Draw(t, name+" bytes")),
	}
}

func total(list []retention.Entry) (sum retention.Total) {
	for _, e := range list {
		if !e.Kept {
			sum.Number++
			sum.Bytes += e.Bytes
		}
	}
	return sum
}

func decide(l retention.Limit, list []retention.Entry) []bool {
	b := retention.NewBudget(l, now, total(list))
	answers := make([]bool, len(list))
	for i, e := range list {
		done := b.Done()
		if answers[i] = b.Remove(e); answers[i] && done {
			panic("an entry goes after Done")
		}
	}
	return answers
}

func TestBudgetProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list, l := anyEntries(t), smallLimit(t, "limit")
		remove := decide(l, list)
		var rest []retention.Entry
		staying := false
		for i, e := range list {
			switch {
			case e.Kept && remove[i]:
				t.Fatal("a kept entry goes")
			case e.Kept:
			case remove[i] && staying:
				t.Fatalf("entry %d goes and an older one stays", i)
			case !remove[i]:
				staying = true
				rest = append(rest, e)
			}
		}
		sum := total(rest)
		if l.Number > 0 && sum.Number > l.Number || l.Bytes > 0 && sum.Bytes > l.Bytes {
			t.Fatalf("%+v remain with the limit %+v", sum, l)
		}
		for _, e := range rest {
			if l.Age > 0 && now.Sub(e.Ended) > l.Age {
				t.Fatalf("an entry of age %s remains with the limit %s", now.Sub(e.Ended), l)
			}
		}
		if len(rest) > 0 { // what remains is not less than needed: the youngest of those that go was over a limit
			for i, e := range slices.Backward(list) {
				if !remove[i] {
					continue
				}
				with := retention.Total{Number: sum.Number + 1, Bytes: sum.Bytes + e.Bytes}
				if (l.Age == 0 || now.Sub(e.Ended) <= l.Age) && (l.Number == 0 || with.Number <= l.Number) && (l.Bytes == 0 || with.Bytes <= l.Bytes) {
					t.Fatalf("entry %d goes within the limit %s", i, l)
				}
				break
			}
		}
		if again := decide(l, list); !slices.Equal(again, remove) {
			t.Fatal("the answers changed")
		}
	})
}

func TestALargerLimitRemovesASubset(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list, l := anyEntries(t), smallLimit(t, "limit")
		larger := l
		grow := smallLimit(t, "more")
		if l.Age > 0 {
			larger.Age += grow.Age
		}
		if l.Number > 0 {
			larger.Number += grow.Number
		}
		if l.Bytes > 0 {
			larger.Bytes += grow.Bytes
		}
		small, large := decide(l, list), decide(larger, list)
		for i := range list {
			if large[i] && !small[i] {
				t.Fatalf("entry %d goes with %s, and stays with %s", i, larger, l)
			}
		}
	})
}

func TestForeverRemovesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		if slices.Contains(decide(retention.Limit{}, anyEntries(t)), true) {
			t.Fatal("an entry goes")
		}
	})
}

func TestPolicyOver(t *testing.T) {
	t.Parallel()
	week := retention.Limit{Age: 7 * day}
	got := retention.Policy{Logs: &week}.Over(retention.DefaultPolicy())
	if *got.Logs != week || got.Jobs.Age != 30*day || got.Artifacts.Age != 30*day || got.LateReports.Age != 30*day {
		t.Errorf("%+v", got)
	}
	if got := (retention.Policy{Jobs: &retention.Limit{}}).Over(retention.DefaultPolicy()); !got.Jobs.Unlimited() {
		t.Errorf("forever was replaced by the default %s", got.Jobs)
	}
}

func TestShareGrowsWithTheWait(t *testing.T) {
	t.Parallel()
	last := 0.0
	for _, hours := range []int{0, 1, 2, 6, 7, 1000} {
		share := retention.Share(muster.Duration(time.Duration(hours) * time.Hour))
		if share < last || share <= 0 || share > 0.5 {
			t.Errorf("after %d hours: %v", hours, share)
		}
		last = share
	}
}
