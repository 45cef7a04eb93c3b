package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/specvalidate"
	"github.com/muster-dev/muster/internal/store"
)

// Webhooks sends notifications.
type Webhooks interface {
	// Seal encrypts the URLs and secrets of notifications. It returns Invalid for one that another server encrypted.
	Seal(list []muster.Notify) ([]muster.Notify, error)
	// Unseal decrypts the URLs of notifications.
	Unseal(list []muster.Notify) ([]muster.Notify, error)
	// Secret returns the signing secret of a project.
	Secret(project string) (string, error)
	// NotificationsChanged is called after the notifications of a project were changed.
	NotificationsChanged()
	// SendTest sends one test to each notification.
	SendTest(ctx context.Context, project string, list []muster.Notify) ([]store.Delivery, error)
}

// NotificationStore stores the notifications of projects and the delivery log.
type NotificationStore interface {
	ProjectNotify(ctx context.Context, project string) ([]muster.Notify, error)
	SetProjectNotify(ctx context.Context, project string, list []muster.Notify) error
	Deliveries(ctx context.Context, q store.DeliveryQuery) (list []store.Delivery, next string, err error)
}

func (s *server) notifyRoutes() {
	at := rest.Path("/projects/{project}/notify")
	rest.Handle(s.router, rest.Route{ID: "get-notify", Method: http.MethodGet, Path: at, Tag: "notifications",
		Summary: "Show the notifications of a project and their signing secret", Verb: auth.ManageNotify}, s.getNotify)
	rest.Handle(s.router, rest.Route{ID: "put-notify", Method: http.MethodPut, Path: at, Tag: "notifications",
		Summary: "Replace the notifications of a project", Verb: auth.ManageNotify}, s.putNotify)
	rest.Handle(s.router, rest.Route{ID: "delete-notify", Method: http.MethodDelete, Path: at, Tag: "notifications",
		Summary: "Delete the notifications of a project", Verb: auth.ManageNotify}, s.deleteNotify)
	rest.Handle(s.router, rest.Route{ID: "test-notify", Method: http.MethodPost, Path: at + "/test", Tag: "notifications",
		Summary: "Send a test notification and show the result", Verb: auth.ManageNotify}, s.testNotify)
	rest.Handle(s.router, rest.Route{ID: "list-notifications", Method: http.MethodGet, Path: rest.Path("/notifications"), Tag: "notifications",
		Summary: "List the delivery log, newest first", Verb: auth.ReadJobs}, s.listNotifications)
	rest.Handle(s.router, rest.Route{ID: "list-job-notifications", Method: http.MethodGet, Path: rest.Path("/jobs/{job}/notifications"), Tag: "notifications",
		Summary: "List the delivery log of a job, newest first", Verb: auth.ReadJobs}, s.listJobNotifications)
}

// ProjectPath is a project in a path.
type ProjectPath struct {
	Project string `path:"project" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9_-]+$" patternDescription:"letters, digits, - and _"`
}

// authorizeNotify checks that the caller may change the notifications of a project.
func authorizeNotify(ctx context.Context, project string) error {
	return auth.Can(principalOf(ctx), auth.ManageNotify, auth.Object{Project: project})
}

func (s *server) getNotify(ctx context.Context, in *ProjectPath) (*rest.Response[wire.ProjectNotify], error) {
	if err := authorizeNotify(ctx, in.Project); err != nil {
		return nil, err
	}
	list, err := s.projectNotify(ctx, in.Project)
	if err != nil {
		return nil, err
	}
	secret, err := s.Webhooks.Secret(in.Project)
	return rest.Respond(wire.ProjectNotify{Project: in.Project, Notifications: wire.Notifications{Notify: nonNil(list)}, Secret: secret}), err
}

// projectNotify returns the notifications of a project with decrypted URLs, for administrators.
func (s *server) projectNotify(ctx context.Context, project string) ([]muster.Notify, error) {
	list, err := s.Notifications.ProjectNotify(ctx, project)
	if err != nil {
		return nil, err
	}
	return s.Webhooks.Unseal(list)
}

type putNotifyInput struct {
	ProjectPath
	Body wire.Notifications
}

func (s *server) putNotify(ctx context.Context, in *putNotifyInput) (*rest.Response[wire.ProjectNotify], error) {
	if err := authorizeNotify(ctx, in.Project); err != nil {
		return nil, err
	}
	if fieldErrs := specvalidate.Notify(in.Body.Notify); len(fieldErrs) > 0 {
		err := muster.Errorf(muster.InvalidSpec, "invalid notifications: %s", fieldErrs[0])
		err.Fields = fieldErrs
		return nil, err
	}
	sealed, err := s.Webhooks.Seal(in.Body.Notify)
	if err != nil {
		return nil, err
	}
	if err := s.Notifications.SetProjectNotify(ctx, in.Project, sealed); err != nil {
		return nil, err
	}
	s.Webhooks.NotificationsChanged()
	return s.getNotify(ctx, &in.ProjectPath)
}

func (s *server) deleteNotify(ctx context.Context, in *ProjectPath) (*struct{}, error) {
	if err := authorizeNotify(ctx, in.Project); err != nil {
		return nil, err
	}
	if err := s.Notifications.SetProjectNotify(ctx, in.Project, nil); err != nil {
		return nil, err
	}
	s.Webhooks.NotificationsChanged()
	return nil, nil //nolint:nilnil // huma's form of an answer without a body
}

type testNotifyInput struct {
	ProjectPath
	Body *wire.TestNotify
}

func (s *server) testNotify(ctx context.Context, in *testNotifyInput) (*rest.Response[wire.Deliveries], error) {
	if err := authorizeNotify(ctx, in.Project); err != nil {
		return nil, err
	}
	list, err := s.projectNotify(ctx, in.Project)
	if err != nil {
		return nil, err
	}
	if in.Body != nil && in.Body.URL != "" {
		list = slices.DeleteFunc(list, func(n muster.Notify) bool { return n.URL != in.Body.URL })
		if len(list) == 0 {
			return nil, muster.Errorf(muster.NotFound, "project %s has no notification with this URL: %s lists them", in.Project, rest.Path("/projects/"+in.Project+"/notify"))
		}
	}
	sent, err := s.Webhooks.SendTest(ctx, in.Project, list)
	return rest.Respond(deliveriesResponse(sent, "")), err
}

// NotificationFilter selects entries of the delivery log.
type NotificationFilter struct {
	rest.Page
	State string `query:"state" enum:"pending,delivered,failed"`
}

type listNotificationsInput struct {
	NotificationFilter
	Project string `query:"project" maxLength:"64" doc:"only of this project"`
	Job     string `query:"job" maxLength:"20" doc:"only of this job"`
}

func (s *server) listNotifications(ctx context.Context, in *listNotificationsInput) (*rest.Response[wire.Deliveries], error) {
	q := store.DeliveryQuery{Project: in.Project, State: in.State, Cursor: in.Cursor, Limit: in.Limit}
	if in.Job != "" {
		var err error
		if q.Job, err = s.router.AuthorizedJob(ctx, in.Job, auth.ReadJobs); err != nil {
			return nil, err
		}
	}
	if !limitToProject(ctx, &q.Project) {
		return rest.Respond(wire.Deliveries{Deliveries: []wire.Delivery{}}), nil
	}
	return s.notifications(ctx, q)
}

type listJobNotificationsInput struct {
	rest.JobPath
	NotificationFilter
}

func (s *server) listJobNotifications(ctx context.Context, in *listJobNotificationsInput) (*rest.Response[wire.Deliveries], error) {
	if _, err := s.Store.Job(ctx, in.ID()); err != nil {
		return nil, err
	}
	return s.notifications(ctx, store.DeliveryQuery{Job: in.ID(), State: in.State, Cursor: in.Cursor, Limit: in.Limit})
}

func (s *server) notifications(ctx context.Context, q store.DeliveryQuery) (*rest.Response[wire.Deliveries], error) {
	list, next, err := s.Notifications.Deliveries(ctx, q)
	return rest.Respond(deliveriesResponse(list, next)), err
}

func deliveriesResponse(list []store.Delivery, next string) wire.Deliveries {
	deliveries := make([]wire.Delivery, len(list))
	for i := range list {
		d := &list[i]
		deliveries[i] = wire.Delivery{
			ID: d.Message, Project: d.Project, Job: d.Job, Event: d.Event, Host: d.Host, Preset: d.Preset, State: d.State(), Attempts: d.Attempts,
			Status: d.Status, Error: d.Error, Took: d.Latency, CreatedAt: d.CreatedAt, TriedAt: d.AttemptedAt, NextAt: d.NextAt, FinishedAt: d.FinishedAt,
		}
	}
	return wire.Deliveries{Deliveries: deliveries, Next: next}
}

// sealNotifications encrypts the URLs and secrets of a job's notifications, so that the stored spec has none in plain text.
func (s *server) sealNotifications(spec *muster.Spec) error {
	if len(spec.Notify) == 0 {
		return nil
	}
	sealed, err := s.Webhooks.Seal(spec.Notify)
	if err != nil {
		return muster.Errorf(muster.InvalidSpec, "the server cannot run the job spec: %w", err)
	}
	spec.Notify = sealed
	return nil
}
