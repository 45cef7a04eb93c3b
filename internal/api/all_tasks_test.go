package api_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/api/wire"
)

// Pages of all tasks have each task once, newest job first, for any page size.
func TestAllTasksInPages(t *testing.T) {
	s := startPopulatedServer(t)
	list := func(limit string) (ids []string) {
		cursor := ""
		for range 1000 {
			resp, body := send(t, s, request{method: "GET", path: "/api/v1/tasks?state=waiting&state=queued&state=failed&state=succeeded&limit=" + limit + cursor})
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s", resp.Status, body)
			}
			var page wire.Tasks
			if err := json.Unmarshal(body, &page); err != nil {
				t.Fatal(err)
			}
			for i := range page.Tasks {
				ids = append(ids, page.Tasks[i].ID.String())
			}
			if page.Next == "" {
				return ids
			}
			cursor = "&cursor=" + page.Next
		}
		t.Fatal("the list does not end")
		return nil
	}
	all := list("1000")
	first, second, third := slices.Index(all, "3.0"), slices.Index(all, "2.0"), slices.Index(all, "1.0")
	if first < 0 || second < first || third < second || len(all) < 5 {
		t.Fatalf("the tasks are %v: those of job 3 come first, then those of 2 and 1", all)
	}
	for _, limit := range []string{"1", "2", "3", "7"} {
		if got := list(limit); !slices.Equal(got, all) {
			t.Errorf("in pages of %s the tasks are %v, want %v", limit, got, all)
		}
	}
}

// TestEmptyParametersAreRefused checks that empty parameters and list elements are rejected and not treated as absent.
func TestEmptyParametersAreRefused(t *testing.T) {
	s := apitest.Start(t, nil)
	for query, want := range map[string]int{
		"": http.StatusOK, "state=failed": http.StatusOK, "limit=": http.StatusBadRequest, "cursor=": http.StatusBadRequest,
		"state=": http.StatusBadRequest, "state=failed&state=": http.StatusBadRequest, "label=": http.StatusBadRequest, "name=": http.StatusOK,
	} {
		expectStatus(t, s, request{method: "GET", path: "/api/v1/jobs?" + query}, want)
	}
	for query, want := range map[string]int{"id=w-1": http.StatusOK, "id=": http.StatusBadRequest, "id=&id=w-1": http.StatusBadRequest, "id=w-1&id=": http.StatusBadRequest} {
		expectStatus(t, s, request{method: "GET", path: "/api/v1/workers?" + query}, want)
	}
}

// TestInvalidCursorIsRefused checks that an invalid Last-Event-ID is rejected, even if the answer is not a stream.
func TestInvalidCursorIsRefused(t *testing.T) {
	s := startPopulatedServer(t)
	for _, what := range []string{"logs", "usage"} {
		q := request{method: "GET", path: "/api/v1/tasks/1.0/" + what, header: map[string]string{"Last-Event-ID": "1-0"}}
		expectStatus(t, s, q, http.StatusOK)
		q.header["Last-Event-ID"] = "@IBb:z85[3cn"
		expectStatus(t, s, q, http.StatusBadRequest)
	}
}
