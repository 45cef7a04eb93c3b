// Shows the OpenAPI document of this server. It uses nothing from elsewhere.
"use strict";

const methods = ["get", "post", "put", "delete", "head"];

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes ?? {})) node.setAttribute(key, value);
  node.append(...children.filter((c) => c !== null && c !== undefined));
  return node;
}

const nameOf = (ref) => ref.split("/").pop();

// typeOf says in a few words what a schema is; names of objects are links.
function typeOf(schema) {
  if (!schema) return "anything";
  if (schema.$ref) return el("a", { href: "#schema-" + nameOf(schema.$ref) }, nameOf(schema.$ref));
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return joined(choices.map(typeOf), " or ");
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.type === "array") return joined(["list of ", typeOf(schema.items)], "");
  if (schema.type === "object" && typeof schema.additionalProperties === "object") {
    return joined(["map to ", typeOf(schema.additionalProperties)], "");
  }
  const type = [schema.type ?? "anything"].flat().join(" or ");
  return schema.format ? `${type} (${schema.format})` : type;
}

function joined(parts, separator) {
  const node = el("span");
  parts.forEach((part, i) => node.append(i && separator ? separator : "", part));
  return node;
}

function limits(schema) {
  const words = [];
  if (schema?.minimum !== undefined) words.push(`at least ${schema.minimum}`);
  if (schema?.maximum !== undefined) words.push(`at most ${schema.maximum}`);
  if (schema?.maxLength !== undefined) words.push(`at most ${schema.maxLength} characters`);
  if (schema?.maxItems !== undefined) words.push(`at most ${schema.maxItems}`);
  if (schema?.default !== undefined) words.push(`default ${schema.default}`);
  if (schema?.examples?.length) words.push(`such as ${JSON.stringify(schema.examples[0])}`);
  return words.join(", ");
}

function row(name, required, schema, description) {
  const text = [description ?? schema?.description, limits(schema)].filter(Boolean).join("; ");
  return el("tr", {}, el("td", {}, el("code", {}, name), required ? " *" : ""), el("td", {}, typeOf(schema)), el("td", { class: "soft" }, text));
}

function table(title, rows) {
  if (!rows.length) return null;
  const head = el("tr", {}, el("th", {}, title), el("th", {}, "type"), el("th", {}, ""));
  return el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows));
}

function operation(path, method, op) {
  const parameters = (op.parameters ?? []).map((p) => row(`${p.name} (${p.in})`, p.required, p.schema, p.description));
  const bodies = Object.entries(op.requestBody?.content ?? {}).map(([type, media]) => row(type, op.requestBody.required, media.schema));
  const answers = [];
  for (const [status, answer] of Object.entries(op.responses ?? {})) {
    const contents = Object.entries(answer.content ?? {});
    const name = status === "default" ? "error" : status;
    if (!contents.length) answers.push(row(name, false, { type: "no body" }));
    for (const [type, media] of contents) answers.push(row(`${name} ${type}`, false, media.schema));
  }
  return el("section", { id: op.operationId },
    el("h3", {}, el("span", { class: "method" }, method.toUpperCase()), path),
    el("p", {}, op.summary ?? ""),
    table("parameter", parameters), table("body", bodies), table("answer", answers));
}

function schemaSection(name, schema) {
  const required = new Set(schema.required ?? []);
  const rows = Object.entries(schema.properties ?? {}).map(([key, value]) => row(key, required.has(key), value));
  return el("section", { id: "schema-" + name }, el("h3", {}, name), table("field", rows) ?? el("p", {}, typeOf(schema)));
}

function show(doc) {
  const contents = document.getElementById("contents");
  const main = document.getElementById("operations");
  const groups = new Map();
  for (const [path, item] of Object.entries(doc.paths)) {
    for (const method of methods.filter((m) => item[m])) {
      const tag = item[method].tags?.[0] ?? "other";
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push([path, method, item[method]]);
    }
  }
  const example = `curl -H "Authorization: Bearer $MUSTER_TOKEN" ${location.origin}/api/v1/jobs`;
  main.replaceChildren(
    el("h1", {}, `${doc.info.title} API`),
    el("p", {}, `${doc.info.description} This server is version ${doc.info.version}.`),
    el("p", {}, "Each request carries an API key as a bearer token. The whole description for machines is the ",
      el("a", { href: "/api/v1/openapi.json" }, "OpenAPI document"), "."),
    el("pre", {}, example));
  for (const [tag, list] of groups) {
    contents.append(el("h2", {}, tag));
    main.append(el("h2", {}, tag));
    for (const [path, method, op] of list) {
      contents.append(el("a", { href: "#" + op.operationId }, op.summary || op.operationId));
      main.append(operation(path, method, op));
    }
  }
  contents.append(el("h2", {}, "objects"));
  main.append(el("h2", {}, "objects"));
  for (const [name, schema] of Object.entries(doc.components.schemas)) {
    contents.append(el("a", { href: "#schema-" + name }, name));
    main.append(schemaSection(name, schema));
  }
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

fetch("/api/v1/openapi.json")
  .then((answer) => {
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    return answer.json();
  })
  .then(show)
  .catch((error) => {
    document.getElementById("operations").textContent = `The description of the API cannot be shown: ${error.message}.`;
  });
