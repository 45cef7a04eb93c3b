package webhook

import (
	"mime"
	"strings"

	"github.com/muster-dev/muster"
)

type style struct {
	emoji    string // short code of Slack and ntfy
	color    int
	priority string // of ntfy
}

// styles has the styles of messages by their type.
var styles = map[string]style{ //nolint:gochecknoglobals // a constant table
	"job." + string(muster.JobSucceeded): {"white_check_mark", 0x2e9e4f, "default"},
	"job." + string(muster.JobFailed):    {"x", 0xd13438, "high"},
	"job." + string(muster.JobTimedOut):  {"x", 0xd13438, "high"},
	"job." + string(muster.JobCancelled): {"no_entry_sign", 0x8a8886, "low"},
	typeWaiting:                          {"hourglass_flowing_sand", 0xf2a900, "default"},
	typeTest:                             {"bell", 0x0067c0, "default"},
}

// details returns the lines of a message after its sentence.
func (m *message) details() []string {
	var lines []string
	if m.Data.WaitReason != "" {
		lines = append(lines, m.Data.WaitReason)
	}
	for _, f := range m.Data.Failures {
		line := "Task " + f.Task.String()
		if f.Reason != "" {
			line += ": " + string(f.Reason)
		}
		if f.Message != "" {
			line += ": " + muster.Headline(f.Message)
		}
		lines = append(lines, line)
	}
	return lines
}

func (m *message) title() string {
	if m.Data.Job == nil {
		return "Muster test"
	}
	state := stateText(m.Data.Job.State)
	if m.Type == typeWaiting {
		state = "waits"
	}
	return truncate(m.Data.Job.Name, 100) + " " + state
}

// slackBody returns the body for https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks, with blocks of Block Kit.
func slackBody(m *message) map[string]any {
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace
	markdown := func(text string) map[string]string { return map[string]string{"type": "mrkdwn", "text": text} }
	text := escape(m.Data.Message)
	head := ":" + styles[m.Type].emoji + ": *" + text + "*"
	if m.Data.URL != "" {
		head += "\n<" + escape(m.Data.URL) + "|Open in Muster>"
	}
	blocks := []map[string]any{{"type": "section", "text": markdown(head)}}
	if lines := m.details(); len(lines) > 0 {
		blocks = append(blocks, map[string]any{"type": "section", "text": markdown("• " + escape(joinLines(lines, "\n• ", 590)))})
	}
	blocks = append(blocks, map[string]any{"type": "context", "elements": []any{markdown("Project " + escape(m.Data.Project))}})
	return map[string]any{"text": text, "blocks": blocks} // text is for desktop notifications
}

// joinLines joins lines, at least one, up to limit bytes, and drops the others.
func joinLines(lines []string, separator string, limit int) string {
	text := truncate(lines[0], limit)
	for _, l := range lines[1:] {
		if len(text)+len(separator)+len(l) > limit {
			break
		}
		text += separator + truncate(l, limit)
	}
	return text
}

// discordBody returns the body for https://discord.com/developers/docs/resources/webhook#execute-webhook, with an embed object.
func discordBody(m *message) map[string]any {
	field := func(name, value string) map[string]any {
		return map[string]any{"name": name, "value": value, "inline": true}
	}
	fields := []any{field("Project", m.Data.Project)}
	if j := m.Data.Job; j != nil {
		fields = append(fields, field("Job", j.ID.String()))
	}
	embed := map[string]any{"title": m.title(), "timestamp": m.Timestamp, "color": styles[m.Type].color, "fields": fields}
	if lines := m.details(); len(lines) > 0 {
		embed["description"] = joinLines(lines, "\n", 3000)
	}
	if m.Data.URL != "" {
		embed["url"] = m.Data.URL
	}
	noMentions := map[string]any{"parse": []string{}} // no text mentions a user
	return map[string]any{"content": m.Data.Message, "embeds": []any{embed}, "allowed_mentions": noMentions}
}

// ntfyBody returns a message for the URL of an ntfy topic: https://docs.ntfy.sh/publish
func ntfyBody(m *message) (body []byte, headers map[string]string) {
	l := styles[m.Type]
	headers = map[string]string{
		"Content-Type": "text/plain; charset=utf-8", "Title": mime.QEncoding.Encode("utf-8", m.title()), "Priority": l.priority, "Tags": l.emoji,
	}
	if m.Data.URL != "" {
		headers["Click"] = m.Data.URL
	}
	return []byte(joinLines(append([]string{m.Data.Message}, m.details()...), "\n", 3500)), headers
}
