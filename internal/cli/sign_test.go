package cli

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
)

// The server does not choose the project that is signed.
func TestSignedJobsNameTheirProject(t *testing.T) {
	project := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(client.Whoami{Project: project})
	}))
	defer s.Close()
	server, err := client.New(s.URL, "", client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	o := newSignOptions()
	o.key = filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(o.key, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ ofKey, ofJob, signed, want string }{
		{"", "", muster.DefaultProject, ""},
		{muster.DefaultProject, "", muster.DefaultProject, ""},
		{"vision", "audio", "audio", ""},
		{"vision", "", "", "the server would use vision"},
	} {
		project = c.ofKey
		spec := &muster.Spec{Project: c.ofJob, Tasks: []muster.TaskSpec{{Run: &muster.Command{Argv: []string{"true"}}}}}
		a, _, _ := newApp("")
		signer, release, err := a.openSigner(t.Context(), o, server, []document{{spec: spec}})
		if c.want != "" {
			if muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := signer.sign(spec); err != nil || !strings.Contains(spec.Signature.Statement, `"project":"`+c.signed+`"`) {
			t.Errorf("%+v: %v", c, err)
		}
		release()
	}
}
