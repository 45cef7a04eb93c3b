package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

type scheduleConfig struct {
	remote.QueryOptions
	project string
}

func (c *scheduleConfig) flags(usage string, more ...cli.Flag) []cli.Flag {
	return c.Flags(append(more, app.Option{Name: "project", Usage: usage, Complete: c.CompleteProjects()}.WithEnv().StringVar(&c.project))...)
}

// ofProject returns the project of a schedule that a command names.
func (c *scheduleConfig) ofProject() string { return cmp.Or(c.project, muster.DefaultProject) }

func (a *runner) scheduleCommand() *cli.Command {
	return a.NewCommand(app.Command{
		Name: "schedule", Usage: "Submit jobs at times of a cron expression", Category: app.CategorySubmit,
		Description: "The server submits the job of a schedule at each time of its expression, with the rights of the API key that created the schedule. Its jobs have the label muster/schedule=NAME.",
		Commands: []*cli.Command{
			a.scheduleCreateCommand(), a.scheduleListCommand(), a.scheduleShowCommand(),
			a.schedulePauseCommand("pause", "Pause schedules: they have no runs until they are resumed", true), a.schedulePauseCommand("resume", "Resume schedules from now on", false),
			a.scheduleRunCommand(), a.scheduleDeleteCommand(),
		},
	})
}

func (a *runner) scheduleCreateCommand() *cli.Command {
	c := &scheduleConfig{}
	n := client.NewSchedule{Missed: "run-once", Overlap: "allow"}
	var params map[string]string
	return a.NewCommand(app.Command{
		Name: "create", Usage: "Create a schedule for a job spec", Args: "NAME FILE", Complete: app.Files,
		Description: "The expression has five fields: minute, hour, day of the month, month and day of the week; or it is @hourly, @daily, @weekly, @monthly or @yearly. The file is a job spec as for muster submit, " +
			"with one document; its local files are uploaded now. A run is missed if the server does not run at its time, nor in the 5 minutes after it.",
		Flags: c.flags("Project of the schedule (default: that of the spec)", paramOption(&params),
			app.Option{Name: "cron", Value: "expression", Usage: "Times of the runs; required"}.StringVar(&n.Cron),
			app.Option{Name: "timezone", Value: "zone", Usage: "Time zone of the expression, such as Europe/Berlin (default: UTC)"}.StringVar(&n.Timezone),
			app.Option{Name: "missed", Usage: "What happens to missed runs: skip, run-once (the last one is started) or run-all (the last 100)"}.EnumVar(&n.Missed, "skip", "run-once", "run-all"),
			app.Option{Name: "overlap", Usage: "What happens if earlier jobs have not ended: allow, forbid (the run is skipped) or replace (they are cancelled)"}.EnumVar(&n.Overlap, "allow", "forbid", "replace"),
			app.Option{Name: "paused", Usage: "Create it without runs until muster schedule resume"}.BoolVar(&n.Paused),
			app.Option{Name: "replace", Usage: "Replace the schedule with this name if there is one"}.BoolVar(&n.Replace)),
		Examples: []app.HelpRow{
			{Name: `muster schedule create nightly train.yaml --cron "30 2 * * *" --timezone Europe/Berlin`, Usage: "Each night at 2:30 in Berlin"},
			{Name: `muster schedule create sync sync.yaml --cron "*/15 * * * *" --overlap forbid --missed skip`, Usage: "Each quarter of an hour, one job at a time"},
			{Name: "muster ps --label muster/schedule=nightly", Usage: "List the jobs of a schedule"},
		},
		Run: func(ctx context.Context, args []string) error {
			if len(args) != 2 {
				return muster.Errorf(muster.Invalid, "give the name of the schedule and the file of a job spec")
			}
			if n.Cron == "" {
				return muster.Errorf(muster.Invalid, "--cron is required: five fields such as \"30 2 * * *\", or @daily")
			}
			n.Name = args[0]
			return a.createSchedule(ctx, c, args[1], params, n)
		},
	})
}

func (a *runner) createSchedule(ctx context.Context, c *scheduleConfig, file string, params map[string]string, n client.NewSchedule) error {
	docs, err := a.loadSpecs(ctx, []string{file}, params)
	if err != nil {
		return err
	}
	if len(docs) != 1 {
		return muster.Errorf(muster.Invalid, "%s has %d jobs: a schedule has one", file, len(docs))
	}
	spec := docs[0].spec
	project := cmp.Or(c.project, spec.Project, muster.DefaultProject)
	if spec.Project != "" && spec.Project != project {
		return muster.Errorf(muster.Invalid, "--project is %s, but the job spec is of project %s: use the same", project, spec.Project)
	}
	ctx, stop := app.SignalContext(ctx)
	defer stop()
	server, err := c.Connect()
	if err != nil {
		return err
	}
	if err := a.uploadFiles(ctx, server, docs); err != nil {
		return err
	}
	n.Spec = *spec
	created, err := server.CreateSchedule(ctx, project, n)
	if err != nil {
		return a.locateErrors(ctx, docs[0], rejected, err)
	}
	return a.showSchedules(c, []client.Schedule{created})
}

func (a *runner) scheduleListCommand() *cli.Command {
	c := &scheduleConfig{}
	return a.NewCommand(app.Command{
		Name: "list", Usage: "List schedules with their next runs", Flags: c.flags("Only schedules of this project"),
		Run: func(ctx context.Context, _ []string) error {
			server, err := c.Connect()
			if err != nil {
				return err
			}
			list, err := server.Schedules(ctx, c.project)
			if err != nil {
				return err
			}
			l := app.Listing[client.Schedule]{
				OutputOptions: c.OutputOptions, EmptyMessage: "there are no schedules", Rows: app.Seq(list), ID: func(s client.Schedule) string { return s.Name },
				Columns: []term.Column{{Title: "NAME", NoTruncate: true}, {Title: "PROJECT"}, {Title: "CRON", NoTruncate: true}, {Title: "ZONE"}, {Title: "MISSED"}, {Title: "OVERLAP"}, {Title: "NEXT"}, {Title: "OWNER"}},
				Row: func(s client.Schedule, _ time.Time) []string {
					next := ""
					switch {
					case s.Paused:
						next = "paused"
					case len(s.Next) > 0:
						next = app.FormatTime(s.Next[0])
					}
					return []string{s.Name, s.Project, s.Cron, s.Timezone, s.Missed, s.Overlap, next, s.OwnerName}
				},
			}
			return l.Write(a.App)
		},
	})
}

func (a *runner) scheduleShowCommand() *cli.Command {
	c := &scheduleConfig{}
	return a.NewCommand(app.Command{
		Name: "show", Usage: "Show schedules with their next and last runs", Args: "NAME…", Complete: c.CompleteSchedules(&c.project), Flags: c.flags("Project of the schedules (default: default)"),
		Run: func(ctx context.Context, args []string) error {
			list, err := c.each(args, func(server *client.Client, name string) (client.Schedule, error) {
				return server.Schedule(ctx, c.ofProject(), name)
			})
			if err != nil {
				return err
			}
			return a.showSchedules(c, list)
		},
	})
}

// each calls f for each of the schedules that a command names.
func (c *scheduleConfig) each(names []string, f func(*client.Client, string) (client.Schedule, error)) ([]client.Schedule, error) {
	if len(names) == 0 {
		return nil, muster.Errorf(muster.Invalid, "give the names of schedules: muster schedule list shows them")
	}
	server, err := c.Connect()
	if err != nil {
		return nil, err
	}
	list := make([]client.Schedule, len(names))
	for i, name := range names {
		if list[i], err = f(server, name); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (a *runner) schedulePauseCommand(name, usage string, paused bool) *cli.Command {
	c := &scheduleConfig{}
	return a.NewCommand(app.Command{
		Name: name, Usage: usage, Args: "NAME…", Complete: c.CompleteSchedules(&c.project), Flags: c.flags("Project of the schedules (default: default)"),
		Run: func(ctx context.Context, args []string) error {
			list, err := c.each(args, func(server *client.Client, name string) (client.Schedule, error) {
				return server.PauseSchedule(ctx, c.ofProject(), name, paused)
			})
			if err != nil {
				return err
			}
			return a.showSchedules(c, list)
		},
	})
}

func (a *runner) scheduleRunCommand() *cli.Command {
	c := &scheduleConfig{}
	return a.NewCommand(app.Command{
		Name: "run", Usage: "Submit a job of a schedule now", Args: "NAME", Complete: c.CompleteSchedules(&c.project).Once(), Flags: c.flags("Project of the schedule (default: default)"),
		Description: "The job belongs to the owner of the schedule. It is submitted also if the schedule is paused, or earlier jobs have not ended.",
		Run: func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return muster.Errorf(muster.Invalid, "give one name of a schedule: muster schedule list shows them")
			}
			server, err := c.Connect()
			if err != nil {
				return err
			}
			job, err := server.RunSchedule(ctx, c.ofProject(), args[0])
			if err != nil {
				return err
			}
			return app.PrintItems(a.App, c.OutputOptions, []muster.Job{job}, jobID, func(j muster.Job) error {
				return a.WriteLine(fmt.Sprintf("job %s: %s of schedule %s", j.ID, j.Name, args[0]))
			})
		},
	})
}

func (a *runner) scheduleDeleteCommand() *cli.Command {
	c := &scheduleConfig{}
	return a.NewCommand(app.Command{
		Name: "delete", Usage: "Delete schedules, not their jobs", Args: "NAME…", Complete: c.CompleteSchedules(&c.project), Flags: c.flags("Project of the schedules (default: default)"),
		Run: func(ctx context.Context, args []string) error {
			_, err := c.each(args, func(server *client.Client, name string) (client.Schedule, error) {
				return client.Schedule{}, server.DeleteSchedule(ctx, c.ofProject(), name)
			})
			return err
		},
	})
}

func (a *runner) showSchedules(c *scheduleConfig, list []client.Schedule) error {
	return app.PrintItems(a.App, c.OutputOptions, list, func(s client.Schedule) string { return s.Name }, app.WithBlankLines(a.App, a.drawSchedule))
}

// maxShownRuns is how many of the last runs are shown to people.
const maxShownRuns = 10

func (a *runner) drawSchedule(s client.Schedule) error {
	now := time.Now()
	f := app.Details{App: a.App}
	f.Add("schedule", s.Name)
	f.Add("project", s.Project)
	f.Add("cron", s.Cron)
	f.Add("time zone", s.Timezone)
	f.Add("missed runs", s.Missed)
	f.Add("overlap", s.Overlap)
	f.Add("owner", s.OwnerName)
	f.Add("created", app.FormatPast(s.CreatedAt, now))
	if s.UpdatedAt != s.CreatedAt {
		f.Add("updated", app.FormatPast(s.UpdatedAt, now))
	}
	switch {
	case s.Paused:
		f.AddPainted("next runs", term.Yellow, "paused")
	case len(s.Next) == 0:
		f.AddPainted("next runs", term.Yellow, "none")
	}
	for i, t := range s.Next {
		name := "next runs"
		if i > 0 {
			name = ""
		}
		f.Add(name, bothZones(t, s.Timezone))
	}
	f.AddPainted("problem", term.Red, app.LocalTimes(s.Problem))
	if err := f.Draw(); err != nil || len(s.Runs) == 0 {
		return err
	}
	l := app.Listing[client.ScheduleRun]{
		Rows:    app.Seq(s.Runs[:min(len(s.Runs), maxShownRuns)]),
		Columns: []term.Column{{Title: "RUN", NoTruncate: true}, {Title: "OUTCOME", NoTruncate: true}, {Title: "JOB", AlignRight: true, NoTruncate: true}, {Title: "BY"}, {Title: "WHY"}},
		Row: func(r client.ScheduleRun, _ time.Time) []string {
			by, job := "", ""
			if r.Manual {
				by = "user"
			}
			if r.Job != 0 {
				job = r.Job.String()
			}
			return []string{app.FormatTime(r.At), r.Outcome, job, by, app.LocalTimes(r.Message)}
		},
	}
	if err := app.WriteOutput(a.Out, []byte("\n")); err != nil {
		return err
	}
	return l.Write(a.App)
}

// bothZones formats a time in the zone of a schedule, and in that of the user if that shows another time.
func bothZones(t muster.Time, zone string) string {
	local := app.FormatTime(t)
	location, err := time.LoadLocation(zone)
	if err != nil {
		return local
	}
	there := t.Std().In(location).Format("2006-01-02 15:04:05 MST")
	if strings.HasPrefix(there, local[:len("2006-01-02 15:04:05")]) {
		return there
	}
	return there + " (" + local + ")"
}
