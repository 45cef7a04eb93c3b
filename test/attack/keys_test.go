//go:build unix

package attack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
)

// rotate gives a key a new secret.
func (e *env) rotate(id string, how client.RotateKey) client.MadeKey {
	e.t.Helper()
	made, err := e.Client.RotateKey(e.t.Context(), id, how)
	if err != nil {
		e.t.Fatal(err)
	}
	return made
}

// whoami returns the status of a request with a token, and the key that it is of.
func (e *env) whoami(token string) (status int, key string) {
	e.t.Helper()
	rec := e.do(e.request(http.MethodGet, "/api/v1/whoami", token, nil))
	var who wire.Whoami
	if err := json.Unmarshal(rec.Body.Bytes(), &who); err != nil {
		e.t.Fatalf("%s: %v", rec.Body, err)
	}
	return rec.Code, who.Key
}

// works and refused check whether tokens do.
func (e *env) works(tokens ...string) {
	e.t.Helper()
	for _, token := range tokens {
		if status, _ := e.whoami(token); status != http.StatusOK {
			e.t.Errorf("the token %s: %d, want 200", auth.Prefix(token), status)
		}
	}
}

func (e *env) refused(tokens ...string) {
	e.t.Helper()
	for _, token := range tokens {
		if status, _ := e.whoami(token); status != http.StatusUnauthorized {
			e.t.Errorf("the token %s: %d, want 401", auth.Prefix(token), status)
		}
	}
}

// awaitRefused waits until a token is refused.
func (e *env) awaitRefused(token string) {
	e.t.Helper()
	e.Await("the token is refused", awaitTimeout, func() error {
		if status, _ := e.whoami(token); status != http.StatusUnauthorized {
			return fmt.Errorf("it is answered with %d", status)
		}
		return nil
	})
}

// oldSecrets lists the old secrets of a key.
func (e *env) oldSecrets(id string) []client.Key {
	e.t.Helper()
	keys, err := e.Client.Keys(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	return slices.DeleteFunc(keys, func(k client.Key) bool { return k.RotatedTo != id })
}

// TestListsOfKeysHaveNoSecrets: neither a token, nor its hash, nor more than four of its random characters are in lists of keys, and nothing
// but the hash is on the server's disk.
func TestListsOfKeysHaveNoSecrets(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	made := e.key(string(auth.Submitter), "a", 0)
	renewed := e.rotate(made.Key.ID, client.RotateKey{Overlap: muster.Duration(time.Hour)})
	joined := e.join("rig")
	e.works(made.Secret, renewed.Secret)
	tokens := []string{made.Secret, renewed.Secret, joined.Key, e.AdminToken, mustertest.JoinToken}

	list := e.do(e.request(http.MethodGet, "/api/v1/keys", e.AdminToken, nil)).Body.Bytes()
	for _, token := range tokens {
		bare, _ := auth.SplitToken(token)
		random := bare[strings.LastIndexByte(bare, '_')+1:]
		for what, secret := range map[string]string{"a token": bare, "the hash of a token": auth.Hash(token), "five random characters of a token": random[:5]} {
			if bytes.Contains(list, []byte(secret)) {
				t.Errorf("the list of keys has %s", what)
			}
		}
	}
	for _, want := range []string{`"prefix":"` + auth.Prefix(made.Secret) + `"`, `"prefix":"` + auth.Prefix(renewed.Secret) + `"`} {
		if !bytes.Contains(list, []byte(want)) {
			t.Errorf("the list of keys has no %s", want)
		}
	}
	if prefix := auth.Prefix(made.Secret); len(prefix) != len("mst_submitter_")+4 {
		t.Errorf("the prefix of %s is %q", made.Secret, prefix)
	}
	err := filepath.WalkDir(e.DataDir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		for _, token := range []string{made.Secret, renewed.Secret, joined.Key} {
			if bytes.Contains(b, []byte(token)) {
				t.Errorf("%s has a token", d.Name())
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestPrefixOfAKeyDoesNotAuthenticate: what lists show of a key is not enough to use it, nor is its id or its hash.
func TestPrefixOfAKeyDoesNotAuthenticate(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	made := e.key(string(auth.Admin), "", 0)
	e.works(made.Secret)
	e.refused(made.Key.Prefix, made.Key.Prefix+"…", made.Key.ID, auth.Hash(made.Secret), made.Secret[:len(made.Secret)-1], made.Secret+"a", strings.ToUpper(made.Secret))
}

// TestRotatedTokenIsRefusedAfterItsOverlap: both secrets of a rotated key are that key until the overlap ends. Then the old one is
// refused, also after a restart, and the new one still works.
func TestRotatedTokenIsRefusedAfterItsOverlap(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	made := e.key(string(auth.Submitter), "", 0)
	e.works(made.Secret)
	renewed := e.rotate(made.Key.ID, client.RotateKey{Overlap: muster.Duration(4 * time.Second)})
	for _, token := range []string{made.Secret, renewed.Secret} {
		if status, key := e.whoami(token); status != http.StatusOK || key != made.Key.ID {
			t.Errorf("a token during the overlap: %d, of the key %s, want %s", status, key, made.Key.ID)
		}
	}
	if old := e.oldSecrets(made.Key.ID); len(old) != 1 || old[0].Prefix != auth.Prefix(made.Secret) || old[0].ExpiresAt == 0 || old[0].LastUsedAt == 0 {
		t.Errorf("the old secrets are %+v", old)
	}
	e.awaitRefused(made.Secret)
	e.works(renewed.Secret)
	e.Server.Kill()
	e.StartServer()
	e.refused(made.Secret)
	e.works(renewed.Secret)
}

// TestStreamsOfARotatedTokenEndWithItsOverlap: what the old secret opened before or during the overlap ends with it, and what the new one
// opened does not.
func TestStreamsOfARotatedTokenEndWithItsOverlap(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	made := e.key(string(auth.Viewer), "", 0)
	open := func(token string) (ended chan error) {
		resp, err := e.http.Do(e.request(http.MethodGet, "/api/v1/events", token, nil))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		lines := bufio.NewReader(resp.Body)
		if _, err := lines.ReadString('\n'); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d, %v", resp.StatusCode, err)
		}
		ended = make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, lines)
			ended <- err
		}()
		return ended
	}
	before := open(made.Secret)
	rotated := time.Now()
	const overlap = 4 * time.Second
	renewed := e.rotate(made.Key.ID, client.RotateKey{Overlap: muster.Duration(overlap)})
	during, current := open(made.Secret), open(renewed.Secret)
	limit, cancel := context.WithTimeout(t.Context(), overlap+promptLimit)
	defer cancel()
	for what, ended := range map[string]chan error{"before the rotation": before, "during the overlap": during} {
		select {
		case <-ended:
			if d := time.Since(rotated); d < overlap {
				t.Errorf("a stream that began %s ended after %s, before the overlap of %s", what, d, overlap)
			}
		case <-limit.Done():
			t.Errorf("a stream of the old secret that began %s continues", what)
		}
	}
	select {
	case err := <-current:
		t.Errorf("the stream of the new secret ended: %v", err)
	default:
	}
}

// TestOverlapsOnlyGetShorter: an old secret ends with the key, with a shorter overlap of a later rotation, and with its own revocation;
// nothing makes it valid for longer.
func TestOverlapsOnlyGetShorter(t *testing.T) { //nolint:tparallel // its parts are in order
	t.Parallel()
	e := newEnv(t)
	hour := muster.Duration(time.Hour)
	long := client.RotateKey{Overlap: hour}

	t.Run("by the expiry of the key", func(t *testing.T) {
		made := e.key(string(auth.Viewer), "", 10*time.Minute)
		e.rotate(made.Key.ID, long)
		if old := e.oldSecrets(made.Key.ID); len(old) != 1 || old[0].ExpiresAt != made.Key.ExpiresAt {
			t.Errorf("the old secret expires at %+v, and its key at %s", old, made.Key.ExpiresAt)
		}
		e.rotate(made.Key.ID, client.RotateKey{Overlap: hour, TTL: 24 * hour})
		for _, old := range e.oldSecrets(made.Key.ID) {
			if old.ExpiresAt > made.Key.ExpiresAt {
				t.Errorf("a new lifetime of the key is one of its old secret %+v", old)
			}
		}
	})
	t.Run("by a later rotation", func(t *testing.T) {
		first := e.key(string(auth.Viewer), "", 0)
		second := e.rotate(first.Key.ID, long)
		third := e.rotate(first.Key.ID, client.RotateKey{Overlap: 2 * hour})
		e.works(first.Secret, second.Secret, third.Secret)
		fourth := e.rotate(first.Key.ID, client.RotateKey{})
		e.refused(first.Secret, second.Secret, third.Secret)
		e.works(fourth.Secret)
	})
	t.Run("by its revocation", func(t *testing.T) {
		first := e.key(string(auth.Viewer), "", 0)
		second := e.rotate(first.Key.ID, long)
		e.revoke(e.oldSecrets(first.Key.ID)[0].ID)
		e.refused(first.Secret)
		e.works(second.Secret)
	})
	t.Run("by the revocation of the key", func(t *testing.T) {
		first := e.key(string(auth.Viewer), "", 0)
		second := e.rotate(first.Key.ID, long)
		e.works(first.Secret, second.Secret)
		e.revoke(first.Key.ID)
		e.refused(first.Secret, second.Secret)
		if old := e.oldSecrets(first.Key.ID); len(old) != 0 {
			t.Errorf("old secrets of a revoked key remain: %+v", old)
		}
	})
}

// TestRotationsThatAreRefused: a key that cannot get a new secret keeps its own.
func TestRotationsThatAreRefused(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	day := muster.Duration(24 * time.Hour)
	viewer, admin := e.key(string(auth.Viewer), "", 0), e.key(string(auth.Admin), "", 0)
	renewed := e.rotate(viewer.Key.ID, client.RotateKey{Overlap: day})
	short := e.key(string(auth.Viewer), "", time.Second)
	e.awaitRefused(short.Secret)
	for name, c := range map[string]struct {
		token, id string
		how       client.RotateKey
		status    int
		want      string
	}{
		"an overlap without an end":            {e.AdminToken, viewer.Key.ID, client.RotateKey{Overlap: 31 * day}, http.StatusBadRequest, "the maximum is 30d"},
		"an old secret":                        {e.AdminToken, e.oldSecrets(viewer.Key.ID)[0].ID, client.RotateKey{Overlap: day}, http.StatusConflict, "is an old secret"},
		"an expired key":                       {e.AdminToken, short.Key.ID, client.RotateKey{Overlap: day}, http.StatusConflict, "expired at"},
		"the key of the request, without time": {admin.Secret, admin.Key.ID, client.RotateKey{}, http.StatusConflict, "this request uses the key"},
		"by a viewer":                          {viewer.Secret, viewer.Key.ID, client.RotateKey{Overlap: day}, http.StatusForbidden, "may not manage keys"},
	} {
		body, err := json.Marshal(c.how)
		if err != nil {
			t.Fatal(err)
		}
		r := e.request(http.MethodPost, "/api/v1/keys/"+c.id+"/rotate", c.token, bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		if rec := e.do(r); rec.Code != c.status || !strings.Contains(rec.Body.String(), c.want) {
			t.Errorf("%s: %d %s, want %d with %q", name, rec.Code, rec.Body, c.status, c.want)
		}
	}
	e.works(viewer.Secret, renewed.Secret, admin.Secret)
	e.works(e.rotate(short.Key.ID, client.RotateKey{TTL: day, Overlap: day}).Secret)
	e.refused(short.Secret) // a new lifetime does not wake an expired secret

	// An administrator may rotate the own key with an overlap, and gets the answer.
	own, err := client.New(e.URL, admin.Secret, client.Options{HTTP: e.http})
	if err != nil {
		t.Fatal(err)
	}
	made, err := own.RotateKey(t.Context(), admin.Key.ID, client.RotateKey{Overlap: day})
	if err != nil {
		t.Fatal(err)
	}
	e.works(admin.Secret, made.Secret)
}

// TestLinksOfAnOldSecretEndWithIt: a link to a job that was made with an old secret is valid for no longer than that secret, and ends with
// the key.
func TestLinksOfAnOldSecretEndWithIt(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	made := e.key(string(auth.Submitter), "", 0)
	submitter, err := client.New(e.URL, made.Secret, client.Options{HTTP: e.http})
	if err != nil {
		t.Fatal(err)
	}
	job, err := submitter.Submit(t.Context(), &muster.Spec{Tasks: []muster.TaskSpec{{Kind: muster.KindNoop}}}, client.SubmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e.rotate(made.Key.ID, client.RotateKey{Overlap: muster.Duration(time.Hour)})
	rec := e.do(e.request(http.MethodPost, "/api/v1/jobs/"+job.ID.String()+"/share", made.Secret, nil))
	var share wire.Share
	if err := json.Unmarshal(rec.Body.Bytes(), &share); err != nil || rec.Code != http.StatusCreated {
		t.Fatalf("sharing with the old secret: %d %s", rec.Code, rec.Body)
	}
	if old := e.oldSecrets(made.Key.ID); len(old) != 1 || share.ExpiresAt > old[0].ExpiresAt {
		t.Errorf("the link expires at %s, after the old secret %+v", share.ExpiresAt, old)
	}
	e.works(share.Secret)
	e.revoke(made.Key.ID)
	e.refused(share.Secret)
}

// TestProjectAdminsDoNotRotateOtherKeys: with an overlap, too, the administrator of a project gets no secret of a key of another project
// or of all projects, and does not see their old secrets.
func TestProjectAdminsDoNotRotateOtherKeys(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	admin, own := e.key(string(auth.Admin), "a", 0), e.key(string(auth.Viewer), "a", 0)
	foreign, fleet := e.key(string(auth.Viewer), "b", 0), e.key(string(auth.Viewer), "", 0)
	how := client.RotateKey{Overlap: muster.Duration(time.Hour)}
	rotate := func(id string) int {
		r := e.request(http.MethodPost, "/api/v1/keys/"+id+"/rotate", admin.Secret, strings.NewReader(`{"overlap":"1h"}`))
		r.Header.Set("Content-Type", "application/json")
		return e.do(r).Code
	}
	for _, k := range []client.MadeKey{foreign, fleet} {
		renewed := e.rotate(k.Key.ID, how)
		old := e.oldSecrets(k.Key.ID)[0]
		for _, id := range []string{k.Key.ID, old.ID} {
			if status := rotate(id); status != http.StatusNotFound {
				t.Errorf("rotating a key of %q: %d, want 404", k.Key.Project, status)
			}
			if rec := e.do(e.request(http.MethodDelete, "/api/v1/keys/"+id, admin.Secret, nil)); rec.Code != http.StatusNotFound {
				t.Errorf("revoking a key of %q: %d, want 404", k.Key.Project, rec.Code)
			}
		}
		e.works(k.Secret, renewed.Secret)
	}
	if status := rotate(own.Key.ID); status != http.StatusOK {
		t.Errorf("rotating a key of the own project: %d", status)
	}
	var list wire.Keys
	if rec := e.do(e.request(http.MethodGet, "/api/v1/keys", admin.Secret, nil)); json.Unmarshal(rec.Body.Bytes(), &list) != nil || len(list.Keys) != 3 {
		t.Errorf("the administrator of project a sees %s", rec.Body)
	}
}

// TestLastUseSurvivesARestart: when and from where a key was used is known after the server has restarted.
func TestLastUseSurvivesARestart(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	used, unused := e.key(string(auth.Viewer), "", 0), e.key(string(auth.Viewer), "", 0)
	find := func(id string) client.Key {
		keys, err := e.Client.Keys(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return keys[slices.IndexFunc(keys, func(k client.Key) bool { return k.ID == id })]
	}
	begin := muster.NewTime(time.Now())
	e.works(used.Secret)
	before := find(used.Key.ID)
	if before.LastUsedAt < begin || before.LastUsedFrom != "127.0.0.1" {
		t.Errorf("a key that was used now: %+v", before)
	}
	e.Server.Signal(syscall.SIGTERM)
	<-e.Server.Done()
	e.StartServer()
	if after := find(used.Key.ID); !reflect.DeepEqual(after, before) {
		t.Errorf("after a restart the key is %+v, before it %+v", after, before)
	}
	if k := find(unused.Key.ID); k.LastUsedAt != 0 || k.LastUsedFrom != "" {
		t.Errorf("a key that was not used: %+v", k)
	}
}

// TestKeysWithOddFieldsAreRefused creates keys whose names draw on a terminal or look like another name, and whose projects, lifetimes and
// bounds are none.
func TestKeysWithOddFieldsAreRefused(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, fields := range []string{
		`"role":"viewer","project":"../x y"`, `"role":"viewer","project":"a/b"`, `"role":"viewer","project":".."`, `"role":"viewer","project":"` + strings.Repeat("x", 65) + `"`,
		`"role":"viewer","name":"\u001b[2J"`, `"role":"viewer","name":"a\nb"`, `"role":"viewer","name":"a\u202eb"`, `"role":"viewer","name":" a"`, `"role":"viewer","name":"` + strings.Repeat("x", 65) + `"`,
		`"role":"root"`, `"role":"worker"`, `"role":""`, `"role":"operator","project":"p"`, `"role":"viewer","ttl":-1`, `"role":"viewer","ttl":1e300`, `"role":"viewer","hash":"x"`,
		`"role":"viewer","uses":1`, `"role":"join","uses":-1`, `"role":"join","tags":["a b"]`, `"role":"join","addresses":["10.0.0.0/99"]`,
	} {
		if !strings.Contains(fields, `"name"`) {
			fields += `,"name":"a"`
		}
		r := e.request(http.MethodPost, "/api/v1/keys", e.AdminToken, strings.NewReader("{"+fields+"}"))
		r.Header.Set("Content-Type", "application/json")
		if rec := e.do(r); rec.Code != http.StatusBadRequest {
			t.Errorf("{%s}: %d %s", fields, rec.Code, rec.Body)
		}
	}
}
