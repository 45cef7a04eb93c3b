package api

import (
	"context"
	"net/http"

	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/secrets"
)

// Secrets keeps the secrets of projects. It does not return their values.
type Secrets interface {
	// List describes the secrets of a project, by name.
	List(project string) []secrets.Info
	// Set adds a secret or replaces it.
	Set(ctx context.Context, c secrets.Change) (secrets.Info, error)
	// Delete returns NotFound for a secret that the project does not have.
	Delete(ctx context.Context, project, name string) error
	// Find returns the tags that workers need for a secret, or NotFound.
	Find(project, name string) (workers []string, err error)
}

func (s *server) secretRoutes() {
	at := rest.Path("/projects/{project}/secrets")
	rest.Handle(s.router, rest.Route{ID: "list-secrets", Method: http.MethodGet, Path: at, Tag: "secrets",
		Summary: "List the secrets of a project, without their values", Verb: auth.SubmitJobs}, s.listSecrets)
	rest.Handle(s.router, rest.Route{ID: "put-secret", Method: http.MethodPut, Path: at + "/{secret}", Tag: "secrets",
		Summary: "Set a secret of a project", Verb: auth.ManageSecrets}, s.putSecret)
	rest.Handle(s.router, rest.Route{ID: "delete-secret", Method: http.MethodDelete, Path: at + "/{secret}", Tag: "secrets",
		Summary: "Delete a secret of a project", Verb: auth.ManageSecrets}, s.deleteSecret)
}

func (s *server) listSecrets(ctx context.Context, in *ProjectPath) (*rest.Response[wire.Secrets], error) {
	if err := auth.Can(principalOf(ctx), auth.SubmitJobs, auth.Object{Project: in.Project}); err != nil {
		return nil, err
	}
	answer := wire.Secrets{Secrets: []wire.Secret{}}
	for _, info := range s.Secrets.List(in.Project) {
		answer.Secrets = append(answer.Secrets, secretResponse(&info))
	}
	return rest.Respond(answer), nil
}

func secretResponse(info *secrets.Info) wire.Secret {
	return wire.Secret{
		Project: info.Project, Name: info.Name, Version: info.Version, Workers: info.Workers, UpdatedAt: info.UpdatedAt, UpdatedBy: info.UpdatedBy, Problem: info.Problem,
	}
}

// SecretPath is a secret of a project in a path.
type SecretPath struct {
	ProjectPath
	Name string `path:"secret" minLength:"1" maxLength:"64" pattern:"^[A-Za-z_][A-Za-z0-9_]*$" patternDescription:"letters, digits and _, not a digit first"`
}

type putSecretInput struct {
	SecretPath
	Body wire.NewSecret
}

func (s *server) putSecret(ctx context.Context, in *putSecretInput) (*rest.Response[wire.Secret], error) {
	p := principalOf(ctx)
	if err := auth.Can(p, auth.ManageSecrets, auth.Object{Project: in.Project}); err != nil {
		return nil, err
	}
	info, err := s.Secrets.Set(ctx, secrets.Change{Project: in.Project, Name: in.Name, Value: []byte(in.Body.Value), Workers: in.Body.Workers, By: p.Name})
	return rest.Respond(secretResponse(&info)), err
}

func (s *server) deleteSecret(ctx context.Context, in *SecretPath) (*struct{}, error) {
	if err := auth.Can(principalOf(ctx), auth.ManageSecrets, auth.Object{Project: in.Project}); err != nil {
		return nil, err
	}
	return nil, s.Secrets.Delete(ctx, in.Project, in.Name)
}
