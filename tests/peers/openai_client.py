"""openai_client.py URL: the official client against a server: models, chat, stream with usage, choices, logprobs, errors, cancellation."""
import sys, openai
c = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="x", max_retries=0)
m = c.models.list().data[0].id
r = c.chat.completions.create(model=m, messages=[{"role": "user", "content": "hi"}], max_tokens=5, extra_body={"ignore_eos": True})
assert r.usage.completion_tokens == 5 and r.choices[0].finish_reason == "length", r
text, usage = "", None
for ch in c.chat.completions.create(model=m, messages=[{"role": "user", "content": "hi"}], max_tokens=5, stream=True, stream_options={"include_usage": True}, extra_body={"ignore_eos": True}):
    if ch.choices: text += ch.choices[0].delta.content or ""
    if ch.usage: usage = ch.usage
assert text == r.choices[0].message.content and usage.completion_tokens == 5, (text, r)
r = c.completions.create(model=m, prompt=["a", "b"], n=2, max_tokens=4, logprobs=2)
assert len(r.choices) == 4
r = c.chat.completions.create(model=m, messages=[{"role": "user", "content": "hi"}], max_tokens=3, logprobs=True, top_logprobs=3)
assert len(r.choices[0].logprobs.content[0].top_logprobs) == 3
for bad, kind in (({"temperature": -1}, openai.BadRequestError), ({"model": "none"}, openai.NotFoundError)):
    try: c.completions.create(**{"model": m, "prompt": "x", **bad}); assert 0
    except kind as e: assert e.body["message"], e
s = c.completions.create(model=m, prompt="x", max_tokens=100000, stream=True, extra_body={"ignore_eos": True})
next(iter(s)); s.close()
print("openai", openai.__version__, "ok")
