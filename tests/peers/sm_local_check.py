"""boto3 as the client of an sm-local: usage: sm_local_check.py URL.  s3://models/e2b/ must hold a build."""
import datetime
import io
import json
import os
import sys
import time

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

COMMON = dict(endpoint_url=sys.argv[1], region_name="us-east-1", aws_access_key_id="AKIDEXAMPLE",
              aws_secret_access_key="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", config=Config(retries={"max_attempts": 1}))
ROLE = "arn:aws:iam::123456789012:role/q4"


def client(name, **more):
    return boto3.client(name, **{**COMMON, **more})


def refused(code, call, **arguments):
    try:
        call(**arguments)
    except ClientError as e:
        assert e.response["Error"]["Code"] == code, e
        return e.response
    raise AssertionError(f"not refused with {code}")


def account():
    assert client("sts").get_caller_identity()["Account"] == "123456789012"
    keys = client("sts").assume_role(RoleArn=ROLE, RoleSessionName="peer")["Credentials"]
    temporary = client("sts", aws_access_key_id=keys["AccessKeyId"], aws_secret_access_key=keys["SecretAccessKey"], aws_session_token=keys["SessionToken"])
    assert temporary.get_caller_identity()["Arn"].endswith("assumed-role/q4/peer")
    pages = client("service-quotas").get_paginator("list_service_quotas").paginate(ServiceCode="sagemaker")
    assert any(q["QuotaName"] == "ml.g6.xlarge for endpoint usage" and q["Value"] > 0 for p in pages for q in p["Quotas"])
    assert client("ecr").describe_images(registryId="763104351884", repositoryName="vllm")["imageDetails"]
    for name, code, call in (("sagemaker", "InvalidSignatureException", "list_endpoints"), ("sts", "SignatureDoesNotMatch", "get_caller_identity"),
                             ("s3", "SignatureDoesNotMatch", "list_buckets"), ("scheduler", "InvalidSignatureException", "list_schedules")):
        refused(code, getattr(client(name, aws_secret_access_key="wrong"), call))


def storage():
    s3 = client("s3")
    s3.create_bucket(Bucket="peer")
    s3.put_object(Bucket="peer", Key="a/b c+\u00e9.txt", Body=b"hello")
    assert s3.get_object(Bucket="peer", Key="a/b c+\u00e9.txt", Range="bytes=1-3")["Body"].read() == b"ell"
    assert s3.get_object(Bucket="peer", Key="a/b c+\u00e9.txt")["Body"].read() == b"hello"
    big = os.urandom(20 << 20)
    s3.upload_fileobj(io.BytesIO(big), "peer", "big")
    got = io.BytesIO()
    s3.download_fileobj("peer", "big", got)
    assert got.getvalue() == big
    assert [o["Key"] for p in s3.get_paginator("list_objects_v2").paginate(Bucket="peer", PaginationConfig={"PageSize": 1}) for o in p["Contents"]] == \
        ["a/b c+\u00e9.txt", "big"]


def wait(sm, name):
    while (d := sm.describe_endpoint(EndpointName=name))["EndpointStatus"] in ("Creating", "Updating"):
        time.sleep(0.1)
    assert d["EndpointStatus"] == "InService", d
    return d


def make_model(sm, name, where, **environment):
    sm.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer={"Image": "vllm:x", "Environment": environment, "ModelDataSource": {
        "S3DataSource": {"S3Uri": f"s3://models/{where}/", "S3DataType": "S3Prefix", "CompressionType": "None"}}})


def make_config(sm, name, model, instance):
    sm.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[
        {"VariantName": "AllTraffic", "ModelName": model, "InstanceType": instance, "InitialInstanceCount": 1, "ContainerStartupHealthCheckTimeoutInSeconds": 60}])


def update(sm, runtime):
    """The new configuration replaces the old one, which serves until then; one that never serves leaves it."""
    make_model(sm, "next", "e2b", SM_VLLM_SERVED_MODEL_NAME="next")
    make_model(sm, "ghost", "no-such-model")
    make_config(sm, "next", "next", "ml.p5.48xlarge")
    make_config(sm, "ghost", "ghost", "ml.g6e.xlarge")
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1})
    ask = lambda: json.loads(runtime.invoke_endpoint(EndpointName="peer", Body=body, ContentType="application/json")["Body"].read())["model"]
    refused("ValidationException", sm.update_endpoint, EndpointName="nobody", EndpointConfigName="next")
    refused("ValidationException", sm.update_endpoint, EndpointName="peer", EndpointConfigName="nothing")
    first = ask()
    sm.update_endpoint(EndpointName="peer", EndpointConfigName="next")
    d = sm.describe_endpoint(EndpointName="peer")
    assert d["EndpointStatus"] == "Updating" and d["EndpointConfigName"] == "peer" and d["PendingDeploymentSummary"]["EndpointConfigName"] == "next", d
    for call in (sm.delete_endpoint, lambda EndpointName: sm.update_endpoint(EndpointName=EndpointName, EndpointConfigName="peer")):
        assert "in-progress" in refused("ValidationException", call, EndpointName="peer")["Error"]["Message"]
    assert ask() == first != "next"
    assert wait(sm, "peer")["EndpointConfigName"] == "next"
    while ask() != "next":
        time.sleep(0.1)
    sm.update_endpoint(EndpointName="peer", EndpointConfigName="ghost")
    d = wait(sm, "peer")
    assert d["EndpointConfigName"] == "next" and "ping health check" in d["FailureReason"], d
    assert ask() == "next"
    for name in ("next", "ghost"):
        sm.delete_endpoint_config(EndpointConfigName=name)
        sm.delete_model(ModelName=name)


def endpoint():
    sm, runtime, logs = client("sagemaker"), client("sagemaker-runtime"), client("logs")
    sm.create_model(ModelName="peer", ExecutionRoleArn=ROLE, PrimaryContainer={"Image": "vllm:x", "Environment": {"SM_VLLM_MAX_MODEL_LEN": "1024"}, "ModelDataSource": {
        "S3DataSource": {"S3Uri": "s3://models/e2b/", "S3DataType": "S3Prefix", "CompressionType": "None"}}}, Tags=[{"Key": "q4sweep", "Value": "1"}])
    sm.create_endpoint_config(EndpointConfigName="peer", ProductionVariants=[{"VariantName": "AllTraffic", "ModelName": "peer", "InstanceType": "ml.g6.xlarge", "InitialInstanceCount": 1}])
    arn = sm.create_endpoint(EndpointName="peer", EndpointConfigName="peer", Tags=[{"Key": "q4sweep", "Value": "1"}])["EndpointArn"]
    refused("ValidationException", sm.delete_endpoint, EndpointName="peer")
    refused("ValidationException", sm.create_endpoint, EndpointName="peer", EndpointConfigName="peer")
    refused("ValidationException", make_config, sm=sm, name="bad", model="peer", instance="ml.none.xlarge")
    refused("ResourceNotFoundException", logs.filter_log_events, logGroupName="/aws/sagemaker/Endpoints/peer")
    wait(sm, "peer")
    assert sm.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "q4sweep", "Value": "1"}]
    assert [e["EndpointName"] for p in sm.get_paginator("list_endpoints").paginate(NameContains="pe") for e in p["Endpoints"]] == ["peer"]
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "temperature": 0}
    answer = runtime.invoke_endpoint(EndpointName="peer", Body=json.dumps(body), ContentType="application/json")
    text = json.loads(answer["Body"].read())["choices"][0]["message"]["content"]
    stream = runtime.invoke_endpoint_with_response_stream(EndpointName="peer", Body=json.dumps({**body, "stream": True}), ContentType="application/json")
    lines = b"".join(e["PayloadPart"]["Bytes"] for e in stream["Body"]).decode().split("\n\n")
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]) == text
    assert refused("ModelError", runtime.invoke_endpoint, EndpointName="peer", Body="{}", ContentType="application/json")["OriginalStatusCode"] == 400
    refused("ValidationError", runtime.invoke_endpoint, EndpointName="ghost", Body="{}")
    events = [e["message"] for p in logs.get_paginator("filter_log_events").paginate(logGroupName="/aws/sagemaker/Endpoints/peer") for e in p["events"]]
    assert any("Application startup complete" in m for m in events)
    update(sm, runtime)
    start = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=1)
    client("scheduler").create_schedule(Name="peer", ScheduleExpression="rate(1 minute)", StartDate=start, FlexibleTimeWindow={"Mode": "OFF"}, Target={
        "Arn": "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint", "RoleArn": ROLE, "Input": '{"EndpointName":"peer"}'})
    assert client("scheduler").get_schedule(Name="peer")["State"] == "ENABLED"
    sm.get_waiter("endpoint_deleted").wait(EndpointName="peer", WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    client("scheduler").delete_schedule(Name="peer")
    sm.delete_endpoint_config(EndpointConfigName="peer")
    sm.delete_model(ModelName="peer")


account()
storage()
endpoint()
print("boto3", boto3.__version__, "is content")
