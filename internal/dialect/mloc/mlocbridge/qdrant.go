package mlocbridge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// taskType rag: each query becomes a vector by Muster's kind embedding, and the bridge asks Qdrant for the points that
// are next to it.

// maxQueries is how many queries one task may have: their vectors are in its result.
const maxQueries = 100

// retrieval is what a task of type rag asks for.
type retrieval struct {
	URL, Key, Collection, Model string
	TopK                        int
	Queries                     []any // texts
}

// parseRetrieval reads a spec of type rag.
func parseRetrieval(s mloc.Object) (retrieval, error) {
	if err := mloc.CheckSpecFields(s, "qdrant", "embedding", "search", "query", "data", "model", "inference"); err != nil {
		return retrieval{}, err
	}
	q := mloc.Lookup(s, "qdrant")
	r := retrieval{URL: strings.TrimRight(mloc.Text(q["url"]), "/"), Key: mloc.Text(q["api_key"]), Collection: mloc.Text(q["collection"]), Model: mloc.Text(mloc.Lookup(s, "embedding")["model"]), TopK: 5}
	if err := checkURL(r.URL); err != nil {
		return r, mloc.InvalidSpec("spec.qdrant.url is %q: write the address of Qdrant, such as http://127.0.0.1:6333", mloc.Truncate(r.URL, 200))
	}
	if r.Collection == "" || len(r.Collection) > 255 {
		return r, mloc.InvalidSpec("spec.qdrant.collection is missing")
	}
	if r.Model == "" {
		return r, mloc.InvalidSpec("spec.embedding.model is missing: Muster does not guess with which model the collection was made")
	}
	if v := mloc.Lookup(s, "search")["top_k"]; v != nil {
		k, ok := mloc.PositiveInt(v)
		if !ok || k > 1000 {
			return r, mloc.InvalidSpec("spec.search.top_k is %s: write a number from 1 to 1000", mloc.Quoted(v))
		}
		r.TopK = int(k)
	}
	if one := mloc.Text(s["query"]); one != "" {
		r.Queries = append(r.Queries, one)
	}
	items, _ := mloc.Lookup(s, "data")["items"].([]any)
	if slices.ContainsFunc(items, func(v any) bool { return mloc.Text(v) == "" }) {
		return r, mloc.InvalidSpec("spec.data.items has something else than texts")
	}
	r.Queries = append(r.Queries, items...)
	if len(r.Queries) == 0 || len(r.Queries) > maxQueries {
		return r, mloc.InvalidSpec("spec.query and spec.data.items have %d queries: a task has 1 to %d", len(r.Queries), maxQueries)
	}
	return r, nil
}

// stage is the task of Muster that makes the vectors.
func (r retrieval) stage(s mloc.Object) (muster.TaskSpec, error) {
	t := muster.TaskSpec{Kind: "embedding", Resources: mloc.ResourceRequest(s)}
	var err error
	t.Input, err = mloc.Encode(mloc.Escape(mloc.Object{"model": r.Model, "inputs": r.Queries}))
	return t, err
}

// search asks Qdrant with the vectors that the task returned, and makes the result.
func (r retrieval) search(ctx context.Context, w *httpClient, returned json.RawMessage, took float64) (mloc.Object, error) {
	var vectors struct {
		Embeddings []struct {
			Embedding []json.Number `json:"embedding"`
			Error     string        `json:"error"`
		} `json:"embeddings"`
	}
	if err := mloc.Decode(returned, mloc.MaxResult, &vectors); err != nil || len(vectors.Embeddings) != len(r.Queries) {
		return nil, muster.Errorf(muster.Invalid, "the task returned %d vectors for %d queries", len(vectors.Embeddings), len(r.Queries))
	}
	began, total, answers := time.Now(), 0, []any{}
	for i, v := range vectors.Embeddings {
		if len(v.Embedding) == 0 {
			return nil, muster.Errorf(muster.Invalid, "query %d has no vector: %s", i, cmp.Or(v.Error, "it is longer than the model reads"))
		}
		points, err := r.nearest(ctx, w, v.Embedding)
		if err != nil {
			return nil, err
		}
		total += len(points)
		answers = append(answers, mloc.Object{"index": i, "query": r.Queries[i], "items": mloc.NonNilList(points)})
	}
	return mloc.Object{
		"ok": true, "executor": "rag", "qdrant": mloc.Object{"collection": r.Collection, "url": r.URL}, "embedding": mloc.Object{"model": r.Model},
		"search": mloc.Object{"top_k": r.TopK}, "queries": answers,
		"usage": mloc.Object{"latency_sec": round(took + time.Since(began).Seconds()), "num_queries": len(r.Queries), "total_results": total},
	}, nil
}

type point struct {
	ID      any `json:"id"`
	Payload any `json:"payload"`
	Score   any `json:"score"`
}

// nearest returns the points next to a vector.
func (r retrieval) nearest(ctx context.Context, w *httpClient, vector []json.Number) ([]point, error) {
	body, err := mloc.Encode(mloc.Object{"vector": vector, "limit": r.TopK, "with_payload": true})
	if err != nil {
		return nil, err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if r.Key != "" {
		header.Set("Api-Key", r.Key)
	}
	var found struct {
		Result []point `json:"result"`
	}
	err = w.send(ctx, uploadTimeout, http.MethodPost, r.URL+"/collections/"+url.PathEscape(r.Collection)+"/points/search", header, bytes.NewReader(body), int64(len(body)), func(resp *http.Response) error {
		if resp.StatusCode >= 400 {
			return checkStatus(resp)
		}
		b, err := io.ReadAll(io.LimitReader(resp.Body, mloc.MaxResult+1))
		if err != nil {
			return muster.Errorf(muster.Unavailable, "its answer broke off: %w", err)
		}
		return mloc.Decode(b, mloc.MaxResult, &found)
	})
	if no, ok := errors.AsType[*statusError](err); ok {
		return nil, muster.Errorf(muster.Invalid, "Qdrant at %s %s", r.URL, no.Error())
	}
	if err != nil {
		return nil, muster.Errorf(muster.CodeOf(err), "Qdrant at %s: %w", r.URL, err)
	}
	return found.Result, nil
}
