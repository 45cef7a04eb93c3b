package container

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/atomicfile"
)

// access is with what a task pulls its image.
type access struct {
	host   string              // the image's registry
	repo   string              // its canonical name without tag and digest
	creds  *docker.Credentials // of one of the task's secrets; nil: the worker's own, or none
	secret string              // its name
	id     string              // of the credentials, in this process; "" if creds is nil
}

// proof is that credentials may pull an image from a repository.
type proof struct{ image, repo, access string }

// privateImages records which images of the engine were pulled with credentials of tasks. The engine gives an image that it has to every
// container, by each of its names; but a task may use such an image only with credentials that pulled it by the name of that repository, or if
// the registry lets it pull the image again.
//
// A repository is recorded before the first pull with credentials of a task, so that a crash leaves no unrecorded image. All images with a
// name in it are private then, except those that the engine had before, and those that the worker could pull with its own credentials or
// none. Credentials are not stored: a new process of the worker asks the registry once for each.
type privateImages struct {
	path string
	log  *slog.Logger
	key  []byte // of the ids of credentials

	mu       sync.Mutex
	repos    map[string]*privateRepo // by canonical name, such as ghcr.io/acme/train
	verified map[proof]bool
	damaged  bool // the record is unreadable: every image is private
}

type privateRepo struct {
	Open  []string    `json:"open"`  // IDs of its images that every task may use
	Begun muster.Time `json:"begun"` // the first pull

	pulls int  // in flight
	fresh bool // no pull has ended in another way than by a refusal of the registry
}

// How many entries there are before those of images that do not exist any more are dropped.
const (
	maxPrivateRepos = 1000
	maxVerified     = 10_000
)

// lateImage is how long the engine may take to finish a pull that nothing waits for any more.
const lateImage = time.Hour

func openPrivateImages(dir string, log *slog.Logger) *privateImages {
	p := &privateImages{path: filepath.Join(dir, "private-images.json"), log: log, key: make([]byte, 32), repos: map[string]*privateRepo{}, verified: map[proof]bool{}}
	_, _ = rand.Read(p.key) // never fails
	b, err := os.ReadFile(p.path)
	if err == nil {
		err = json.Unmarshal(b, &p.repos)
	}
	if p.repos == nil || slices.Contains(slices.Collect(maps.Values(p.repos)), nil) {
		err = errors.Join(err, errors.New("it has empty entries"))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("reading the record of private images failed: all images are pulled again, until it is removed", slog.String("file", p.path), slog.Any("error", err))
		p.repos, p.damaged = map[string]*privateRepo{}, true
	}
	return p
}

// taskAccess returns with what a task pulls its image, whose canonical name is ref. Its errors are TaskErrors.
func (p *privateImages) taskAccess(t *run.Task, ref string) (*access, error) {
	from := workerAccess(ref)
	for i := range t.Spec.Secrets {
		s := &t.Spec.Secrets[i]
		if s.Registry == "" {
			continue
		}
		if s.Registry != from.host {
			return nil, run.Failf(muster.TaskInvalid, "the secret %s is for the registry %s, and the image %s is of %s", s.Name, s.Registry, familiarRef(ref), from.host)
		}
		creds, err := secretCredentials(t.Secret(s.Name), ref)
		if err != nil {
			return nil, run.Failf(muster.TaskInvalid, "the secret %s cannot be used for the registry %s: %w", s.Name, s.Registry, err)
		}
		from.creds, from.secret, from.id = creds, s.Name, p.credentialsID(creds)
		return from, nil
	}
	return from, nil
}

// workerAccess is that of tasks without credentials of their own.
func workerAccess(ref string) *access {
	repo, _, _ := muster.ParseImage(ref)
	return &access{host: registryHost(ref), repo: repo}
}

// credentialsID returns what identifies credentials in this process, and tells nothing about them.
func (p *privateImages) credentialsID(creds *docker.Credentials) string {
	mac := hmac.New(sha256.New, p.key)
	fmt.Fprintf(mac, "%q", []string{creds.ServerAddress, creds.Username, creds.Password, creds.IdentityToken})
	return string(mac.Sum(nil))
}

// secretCredentials reads credentials for an image's registry from the value of a secret: user:password, or a config.json of Docker, whose
// credential helpers are not run.
func secretCredentials(value []byte, ref string) (*docker.Credentials, error) {
	value = bytes.TrimSpace(value)
	if bytes.HasPrefix(value, []byte("{")) {
		var f authFile
		if json.Unmarshal(value, &f) != nil {
			return nil, errors.New("it is neither user:password nor a config.json of Docker")
		}
		creds, err := f.stored(ref)
		if err == nil && creds == nil {
			err = fmt.Errorf("its config.json has no credentials for %s: credential helpers are not used", registryHost(ref))
		}
		return creds, err
	}
	user, password, _ := strings.Cut(string(value), ":")
	if user == "" || password == "" {
		return nil, errors.New("it is neither user:password nor a config.json of Docker")
	}
	return &docker.Credentials{ServerAddress: serverAddress(ref), Username: user, Password: password}, nil
}

// begin records a pull with credentials of a task, before it starts. images are all of the engine.
func (p *privateImages) begin(ref string, images []docker.ImageSummary) error {
	repo, _, _ := muster.ParseImage(ref)
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.repos[repo]; r != nil || p.damaged {
		if r != nil {
			r.pulls++
		}
		return nil
	}
	if len(p.repos) >= maxPrivateRepos {
		known := map[string]bool{}
		for i := range images {
			for name := range repositories(images[i].Names) {
				known[name] = true
			}
		}
		maps.DeleteFunc(p.repos, func(name string, r *privateRepo) bool {
			return !known[name] && r.pulls == 0 && time.Since(r.Begun.Std()) > lateImage
		})
	}
	r := &privateRepo{Begun: muster.NewTime(time.Now()), pulls: 1, fresh: true}
	for i := range images {
		if repositories(images[i].Names)[repo] {
			r.Open = append(r.Open, images[i].ID)
		}
	}
	p.repos[repo] = r
	if err := p.save(); err != nil {
		delete(p.repos, repo)
		return fmt.Errorf("the worker cannot record that the image %s is private: %w", familiarRef(ref), err)
	}
	return nil
}

// end records the end of a pull that begin recorded. The repository is forgotten if its registry refused to let all tasks pull from it, so that
// wrong names do not fill the record.
func (p *privateImages) end(ref string, pullErr error) {
	repo, _, _ := muster.ParseImage(ref)
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.repos[repo]
	if r == nil {
		return
	}
	r.pulls--
	r.fresh = r.fresh && (errors.Is(pullErr, docker.ErrDenied) || errors.Is(pullErr, docker.ErrNotFound))
	if r.fresh && r.pulls == 0 {
		delete(p.repos, repo)
		p.trySave()
	}
}

// allows reports whether a task may use an image of the engine without asking its registry.
func (p *privateImages) allows(img *docker.Image, from *access) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.verified[proof{img.ID, from.repo, from.id}] {
		return true
	}
	if p.damaged {
		return false
	}
	for name := range repositories(img.Tags, img.Digests) {
		if r := p.repos[name]; r != nil && !slices.Contains(r.Open, img.ID) {
			return false
		}
	}
	return true
}

// pulled records that a task pulled an image, and that its registry allows it.
func (p *privateImages) pulled(img *docker.Image, from *access) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.verified) >= maxVerified {
		clear(p.verified)
	}
	p.verified[proof{img.ID, from.repo, from.id}] = true
	if r := p.repos[from.repo]; r != nil && from.creds == nil && !slices.Contains(r.Open, img.ID) {
		r.Open = append(r.Open, img.ID)
		p.trySave()
	}
}

// trySave writes what is not needed for safety. The caller holds mu.
func (p *privateImages) trySave() {
	if err := p.save(); err != nil {
		p.log.Warn("writing the record of private images failed", slog.Any("error", err))
	}
}

// save writes the file. The caller holds mu.
func (p *privateImages) save() error {
	b, err := json.Marshal(p.repos)
	if err != nil {
		return err
	}
	return atomicfile.Write(p.path, b, 0o600)
}

// repositories returns the canonical names of the repositories in names of images.
func repositories(lists ...[]string) map[string]bool {
	all := map[string]bool{}
	for _, list := range lists {
		for _, ref := range list {
			if name, _, ok := muster.ParseImage(ref); ok {
				all[name] = true
			}
		}
	}
	return all
}
