// The official JavaScript client against a running server: node javascript_client.mjs URL MODEL. Run by
// javascript_client_test.py, which starts the server. Exits non-zero at the first broken promise.
import assert from "node:assert/strict";
import OpenAI from "openai";

const [url, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "any", maxRetries: 0 });
const messages = [
  { role: "system", content: "You are a helpful assistant." },
  { role: "user", content: "What is the capital of France?" },
];
const others = ["Write a poem about rivers.", "Count to twenty.", "Explain gravity.", "Name five birds.",
  "What is a compiler?", "Tell me a story.", "List the planets.", "How do I bake bread?"];

const chat = (more = {}) => client.chat.completions.create({ model, messages, temperature: 0, ...more });
async function streamed(more = {}) {
  let text = "", usage = null;
  for await (const chunk of await chat({ stream: true, ...more })) {
    text += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  return { text, usage };
}

const checks = {
  async parisAlone() {
    const whole = await chat();
    assert.match(whole.choices[0].message.content, /\bParis\b/);
    const stream = await streamed({ stream_options: { include_usage: true } });
    assert.equal(stream.text, whole.choices[0].message.content);
    assert.deepEqual(stream.usage, whole.usage);
  },
  async parisAmongEightOthers() {
    const alone = (await chat()).choices[0].message.content;
    const busy = others.map((content) => chat({ messages: [{ role: "user", content }], max_tokens: 80, temperature: 1 }));
    const [whole, stream] = await Promise.all([chat(), streamed()]);
    assert.equal(whole.choices[0].message.content, alone);
    assert.equal(stream.text, alone);
    for (const answer of await Promise.all(busy)) assert.ok(answer.choices[0].message.content.length > 0);
  },
  async seedsChoicesAndStops() {
    const draw = async (seed) => (await chat({ temperature: 1, seed, max_tokens: 24 })).choices[0].message.content;
    assert.equal(await draw(42), await draw(42));
    const two = await chat({ n: 2, temperature: 1, seed: 1, max_tokens: 16 });
    assert.deepEqual(two.choices.map((choice) => choice.index), [0, 1]);
    const whole = (await chat()).choices[0].message.content;
    assert.equal((await streamed({ stop: ["Paris"] })).text, whole.slice(0, whole.indexOf("Paris")));
  },
  async logprobsRejoin() {
    const choice = (await chat({ logprobs: true, top_logprobs: 2, max_tokens: 16 })).choices[0];
    const joined = Buffer.concat(choice.logprobs.content.map((token) => Buffer.from(token.bytes)));
    assert.equal(joined.toString("utf8"), choice.message.content);
  },
  async errorsAreTheClientsOwn() {
    await assert.rejects(chat({ model: "other" }), (e) => e instanceof OpenAI.NotFoundError && e.code === "model_not_found" && Boolean(e.requestID));
    await assert.rejects(chat({ temperature: 9 }), (e) => e instanceof OpenAI.BadRequestError && e.param === "temperature");
    await assert.rejects(streamed({ messages: [{ role: "user", content: "word ".repeat(20000) }] }),
      (e) => e instanceof OpenAI.BadRequestError && e.code === "context_length_exceeded");
  },
  async aLeftStreamEnds() {
    const stream = await chat({ stream: true, max_tokens: 2000, messages: [{ role: "user", content: "Count to one thousand." }] });
    for await (const chunk of stream) {
      if (chunk.choices[0].delta.content) break;  // leaving the loop aborts the request
    }
  },
  async streamHelper() {
    const runner = client.chat.completions.stream({ model, messages, temperature: 0 });
    const final = await runner.finalChatCompletion();
    assert.match(final.choices[0].message.content, /Paris/);
  },
};

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log(`ok ${name}`);
}
