// Writes src/api/schema.d.ts from openapi.json. Sizes may be sent as text such as 4GiB, too, but answers always have
// numbers, and so has what the dashboard sends.
import { readFileSync, writeFileSync } from "node:fs";
import openapiTS, { astToString } from "openapi-typescript";
import ts from "typescript";

const number = ts.factory.createKeywordTypeNode(ts.SyntaxKind.NumberKeyword);
const size = (s) => s.anyOf?.length === 2 && s.anyOf[0].type === "integer" && s.anyOf[1].type === "string";

const document = JSON.parse(readFileSync(new URL("../openapi.json", import.meta.url), "utf8"));
const ast = await openapiTS(document, {
  transform: (schema) => (size(schema) ? number : undefined),
});
writeFileSync(new URL("../src/api/schema.d.ts", import.meta.url), `// Generated from openapi.json by npm run gen. Do not edit.\n${astToString(ast)}`);
